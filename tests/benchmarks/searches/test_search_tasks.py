"""The sixty tasks: all sixty are there and differ, and one seed always draws the same of them."""

from __future__ import annotations

import pytest
from replays.search_tasks import DRAWN, FAMILIES, SAMPLE, TASKS, chosen, family, workload

from autotensor.base.target import parse
from schedules.generate import generate


def test_there_are_sixty_tasks():
    counts = {name: len(tasks) for name, tasks in FAMILIES.items()}
    assert counts == {"gemm": 15, "conv": 20, "depthwise": 7, "attention": 5, "rows": 8, "unknown": 5}
    assert len(TASKS) == 60  # no name twice
    assert {family(n) for n in SAMPLE} <= set(FAMILIES)


def test_every_task_is_a_workload_of_its_own_that_rules_can_schedule():
    target = parse("llvm -mcpu=x86-64-v4 -threads=2")
    found = {n: workload(n) for n in TASKS}
    assert len({w.key for w in found.values()}) == len(TASKS)
    assert all(generate(found[n].dag, target) for n in SAMPLE)


def test_a_seed_draws_the_same_twenty():
    drawn = chosen("", 7)
    assert len(drawn) == DRAWN
    assert drawn == chosen("", 7) != chosen("", 8)
    assert chosen("", None) == tuple(TASKS)
    assert chosen("unknown,ffn,ffn", None) == (*FAMILIES["unknown"], "ffn")
    assert chosen("unknown", 3) == tuple(FAMILIES["unknown"])
    with pytest.raises(SystemExit, match="no task or family is called 'nothing'"):
        chosen("nothing", None)
