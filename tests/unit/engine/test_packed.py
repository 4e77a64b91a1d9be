import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine import packed as p
from streams.engine.errors import PackedRecordDamaged, UnknownPackedVersion
from streams.engine.log import LogId
from streams.engine.settlement import Settlement, unsent_key
from tests.unit.engine.build import id_of, settlement

LOG = LogId("usage", "life-1", 3)
Blob = st.binary(max_size=20)


@st.composite
def settlements(draw: st.DrawFn) -> Settlement:
    first = draw(st.integers(0, 2**62))
    last = first + draw(st.integers(0, 100))
    width = draw(st.integers(0, 20))
    value = st.binary(min_size=width, max_size=width)
    pairs = st.lists(st.tuples(st.binary(min_size=16, max_size=16), value), max_size=5)
    return Settlement(
        first=first,
        last=last,
        anchor=draw(st.binary(min_size=16, max_size=16)),
        catalogue_hash=draw(Blob),
        timestamp_ms_max=draw(st.integers(0, 2**50)),
        received_max_us=draw(st.integers(-1, 2**60)),
        seen=draw(pairs),
        pinned=draw(pairs),
        levels=draw(st.lists(st.tuples(Blob, Blob), max_size=3)),
        unsent=[(unsent_key(first, 7), draw(Blob))],
    )


@given(settlements(), st.integers(-1, 2**60), st.integers(-1, 2**60))
def test_what_is_packed_comes_out_again(batch: Settlement, floor_us: int, confirmed: int) -> None:
    batch.check()
    packed = p.pack(
        LOG,
        batch,
        timestamp_ms_max=batch.timestamp_ms_max,
        floor_us=floor_us,
        confirmed=confirmed,
    )
    record = p.decode(p.encode(packed), refuse)
    assert record.confirmed == confirmed
    assert (record.topic_id, record.partition) == (LOG.topic_id, LOG.partition)
    assert (record.first, record.last, record.anchor) == (batch.first, batch.last, batch.anchor)
    assert (record.timestamp_ms_max, record.received_max_us, record.floor_us) == (
        batch.timestamp_ms_max,
        batch.received_max_us,
        floor_us,
    )
    assert (record.seen(), record.pinned()) == (batch.seen, batch.pinned)
    assert (record.levels, record.unsent) == (batch.levels, batch.unsent)
    assert record.catalogue_hash == batch.catalogue_hash


def refuse(value: bytes) -> bytes:
    raise AssertionError(f"laid out anew: {value!r}")


def encoded() -> bytes:
    return p.encode(
        p.pack(LOG, settlement(0, 3), timestamp_ms_max=5_000, floor_us=-1, confirmed=-1)
    )


def test_a_newer_version_is_named_and_not_guessed() -> None:
    data = bytearray(encoded())
    data[2] = 9
    with pytest.raises(UnknownPackedVersion, match="version 9, this release reads versions 1 to 2"):
        p.decode(bytes(data), refuse)


def test_a_version_before_the_first_is_none() -> None:
    with pytest.raises(UnknownPackedVersion, match="version 0"):
        p.decode(b"TP\x00" + encoded()[3:], refuse)


def test_values_of_ids_of_version_1_are_laid_out_as_this_one_lays_them_out() -> None:
    batch = settlement(0, 3, pinned=[(id_of("p"), b"56")])
    packed = p.pack(LOG, batch, timestamp_ms_max=5_000, floor_us=-1, confirmed=-1)
    data = bytearray(p.encode(packed))
    data[2] = 1
    record = p.decode(bytes(data), lambda value: value[1:] + value[:1])
    assert record.seen() == [(key, value[1:] + value[:1]) for key, value in batch.seen]
    assert record.pinned() == [(id_of("p"), b"65")]
    assert (record.levels, record.unsent) == (batch.levels, batch.unsent)
    assert (record.first, record.last) == (0, 3)


@pytest.mark.parametrize(
    "data", [b"", b"TP", b"{}", b'{"v": 1}', b"TP\x02", b"TP\x01", encoded()[:-1]]
)
def test_what_is_no_packed_record_is_refused(data: bytes) -> None:
    with pytest.raises(PackedRecordDamaged):
        p.decode(data, refuse)


def test_ids_and_values_that_do_not_match_are_refused() -> None:
    record = p.pack(LOG, settlement(0, 1), timestamp_ms_max=5_000, floor_us=-1, confirmed=-1)
    broken = type(record)(
        **{f: getattr(record, f) for f in record.__struct_fields__} | {"ids": id_of("a") + b"x"}
    )
    with pytest.raises(PackedRecordDamaged, match="ids: 17 bytes of ids"):
        p.decode(p.encode(broken), refuse)
