"""Buffer plans: no two live values overlap, and the arena is close to the lower bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotensor.graph.memory import ALIGNMENT, Lifetime, lower_bound, plan, plan_in_boxes

VALUES = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 6)).map(
        lambda t: Lifetime("v", t[0], t[1], t[1] + t[2])
    ),
    max_size=25,
)


@given(VALUES)
def test_no_two_live_values_overlap(values):
    p = plan(values)
    assert len(p.offsets) == len(values)
    for n, (v, a) in enumerate(zip(values, p.offsets, strict=True)):
        assert a % ALIGNMENT == 0
        assert 0 <= a <= a + v.size <= p.arena_bytes
        for w, b in zip(values[:n], p.offsets[:n], strict=True):
            assert not v.meets(w) or a + v.size <= b or b + w.size <= a
    assert p.lower_bound_bytes <= p.arena_bytes <= p.unshared_bytes


@given(VALUES)
def test_the_lower_bound_is_the_fullest_step(values):
    steps = range(30)
    most = max((sum(v.size for v in values if v.first <= s <= v.last) for s in steps), default=0)
    assert lower_bound(values) == most


def test_a_chain_needs_two_buffers():
    p = plan([Lifetime(f"v{n}", 1000, n, n + 1) for n in range(10)])
    assert (p.arena_bytes, p.lower_bound_bytes, p.unshared_bytes) == (2048, 2048, 10240)


def test_nothing_needs_nothing():
    assert (plan([]).arena_bytes, plan([]).offsets) == (0, ())


@pytest.mark.parametrize("bytes_", [1, 64, 65])
def test_sizes_are_whole_cache_lines(bytes_):
    assert Lifetime("v", bytes_, 0, 0).size == -(-bytes_ // 64) * 64


def test_the_plan_says_what_it_is():
    text = str(plan([Lifetime("a", 128, 0, 1), Lifetime("b", 64, 2, 3)]))
    assert text.endswith("at least 128 are alive at once, 192 without sharing")
    assert text.startswith("arena 128 bytes (greedy by size")


@given(VALUES)
def test_no_two_values_of_a_box_are_alive_together(values):
    made = plan_in_boxes(values)
    assert sorted(n for box in made.boxes for n in box) == [*range(len(values))]
    ends = [0]
    for box in made.boxes:
        assert {made.offsets[n] for n in box} == {ends[-1]}
        assert not any(values[a].meets(values[b]) for a in box for b in box if a < b)
        ends.append(ends[-1] + max(values[n].size for n in box))
    assert ends[-1] == made.arena_bytes >= made.lower_bound_bytes
