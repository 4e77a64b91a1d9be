from hypothesis import given
from hypothesis import strategies as st

from streams.engine import generations as gen
from streams.engine.generations import Generation

Additions = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 1_000), st.integers(0, 3)), max_size=30
)


@given(Additions)
def test_nothing_above_the_floor_is_forgotten(additions: list[tuple[int, int, int]]) -> None:
    floor, current = -1, 0
    held: tuple[Generation, ...] = ()
    received: dict[int, list[int]] = {}
    for step, received_us, ids in additions:
        current = max(current, step)
        floor = gen.floor_at(floor, held, current)
        held = gen.with_ids(held, current, received_max_us=received_us, ids=ids)
        received.setdefault(current, []).append(received_us)
    remembered = {g.number for g in gen.remembered(held, current)}
    forgotten = [r for n, all_ in received.items() if n not in remembered for r in all_]
    assert max(forgotten, default=-1) == floor


@given(Additions)
def test_remembered_generations_never_share_a_slot(additions: list[tuple[int, int, int]]) -> None:
    held: tuple[Generation, ...] = ()
    current = 0
    for step, received_us, ids in additions:
        current = max(current, step)
        held = gen.with_ids(held, current, received_max_us=received_us, ids=ids)
        slots = [gen.slot_of(g.number) for g in held]
        assert len(set(slots)) == len(slots) <= gen.KEPT


def test_an_id_lives_for_at_least_the_horizon() -> None:
    horizon_ms = 7 * 24 * 3_600_000
    width = gen.width_ms(horizon_ms)
    seen_at_ms = 5 * width + width - 1
    just_before = (seen_at_ms + horizon_ms) // width
    assert not gen.is_forgotten(seen_at_ms // width, just_before)
