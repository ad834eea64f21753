"""Parts of a search's space: the default's tiles, or every structure once."""

from __future__ import annotations

from replays.parts_of_space import only, structures, tiles
from replays.search_tasks import workload

from autotensor.base.target import parse
from autotensor.search import loop
from schedules.generate import default_trace, generate


def test_parts_keep_the_default_and_the_rest_is_gone():
    target, dag = parse("llvm -mcpu=x86-64-v3 -threads=1"), workload("odd").dag
    whole = generate(dag, target)
    assert len(whole) > 1
    assert [s.size for s in structures(whole)] == [1] * len(whole)
    assert tiles(whole) == whole[:1]
    default = default_trace(dag, target)
    for found in (tiles(whole), structures(whole)):
        first = found[0]
        assert first.fill({h.name: h.default for h in first.holes}) == default


def test_only_inside_the_block():
    target, dag = parse("llvm -mcpu=x86-64-v3 -threads=1"), workload("odd").dag
    whole = loop.generate
    with only("tiles"):
        assert len(loop.generate(dag, target)) == 1
    with only(""):
        assert loop.generate is whole
    assert loop.generate is whole
