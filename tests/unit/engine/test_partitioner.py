import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine.partitioner import home_of, home_partition, murmur2


# What org.apache.kafka.common.utils.Utils.murmur2 answers, as Java prints it.
@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_javas(key: bytes, java: int) -> None:
    assert murmur2(key) == java % 2**32


@given(st.binary(max_size=40), st.integers(1, 200))
def test_every_key_has_one_home_among_the_partitions(key: bytes, partitions: int) -> None:
    home = home_of(partitions, keys_max=4)
    assert 0 <= home(key) < partitions
    assert home(key) == home_partition(key, partitions)


def test_no_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="partitions: at least 1, not 0"):
        home_of(0)
