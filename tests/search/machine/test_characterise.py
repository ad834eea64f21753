"""Records from measurements: a planted machine gives its own record, and differences within the noise are
left out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from math import inf
from typing import Any

import pytest
from entry_points import installed
from planted_cpu import PLANTED, planted, target_of

from autotensor.base.errors import MeasureError
from autotensor.base.target import host
from autotensor.search.machine import cpu_probes
from autotensor.search.machine.characterise import Certainty, Characterised, characterise
from autotensor.search.machine.cpu_probes import l1_ways, measured_passes, product_tiles
from autotensor.search.machine.microkernels import tiles
from schedules import cpu as records
from schedules.cpu import RECORDS, XEON, ZEN3, ZEN4, Cpu, cpu_of, register

WHERE = "Made-up 1, 2027-01"
SLOW_L2 = replace(PLANTED, l2_rate=12.0, bandwidths=(12 * PLANTED.clock, *PLANTED.bandwidths[1:]))
AVX2 = replace(
    PLANTED, vector_bytes=32, vector_registers=16, latency=4, accumulators=8, cache_bytes=(48 << 10, 3 << 20)
)
HALVING = replace(PLANTED, multiplies=1.0, latency=3, accumulators=3, halves=ZEN4.halves)


@pytest.fixture(autouse=True)
def registered() -> Iterator[list[Cpu]]:
    """The known records; a test's own records are removed after it."""
    before = list(RECORDS)
    yield RECORDS
    RECORDS[:] = before
    cpu_of.cache_clear()


def found_of(cpu: Cpu, passes: int = 3) -> Characterised:
    return characterise(target_of(cpu), [planted(cpu)] * passes)


def new(text: str) -> Any:
    """The record NEW of the printed module."""
    names: dict[str, Any] = {}
    exec(compile(text, "printed", "exec"), names)
    return names["NEW"]


MEASURED = [f.field for f in found_of(PLANTED).findings if f.standing is not Certainty.MISSING]


@pytest.mark.parametrize(
    "machine", [PLANTED, SLOW_L2, AVX2, HALVING], ids=["wide", "slow L2", "AVX2", "halves"]
)
def test_a_planted_machine_gives_its_own_record_back(machine: Cpu) -> None:
    found = found_of(machine)
    assert {n: getattr(found.record, n) for n in MEASURED} == {n: getattr(machine, n) for n in MEASURED}
    others = {f.name for f in fields(Cpu)} - {*MEASURED, "name", "archs"}
    assert all(getattr(found.record, n) == getattr(found.nearest, n) for n in others)
    assert (found.record.name, found.record.archs) == ("madeup1", ("madeup1",))


def test_dot_instructions_are_told_by_operations_over_those_of_fmas() -> None:
    target = replace(target_of(PLANTED), features="+avx512bw,+avx512vnni")
    machine = replace(PLANTED, vector_bytes=64, vector_registers=32)
    one = machine.multiplies * 2 * 16 * machine.clock
    rates = {
        "dot.x86.vpdpbusd.512": 2.0 * one,
        "dot.x86.vpdpbsud.512": 1.9 * one,
        "dot.x86.vpmaddwd.512": one,
    }
    found = characterise(target, [planted(machine) | rates] * 3)
    nearest = dict(XEON.dots)
    assert dict(found.record.dots) == nearest | {"vpdpb": 2.0, "vpmaddwd": 1.0}
    assert new(found.python(WHERE)).dots == found.record.dots


def test_the_nearest_is_the_one_with_as_many_multiplies() -> None:
    like = {"vector_bytes": 64, "vector_registers": 32, "cache_bytes": ZEN4.cache_bytes}
    assert found_of(replace(HALVING, **like)).nearest is ZEN4
    assert found_of(AVX2).nearest is ZEN3


@pytest.mark.parametrize("machine", [PLANTED, HALVING], ids=["wide", "halves"])
def test_what_is_printed_is_python_and_registered_is_the_record_of_the_target(machine: Cpu) -> None:
    found = found_of(machine)
    text = found.python(WHERE)
    record = new(text)
    assert isinstance(record, Cpu)
    assert record == found.record
    assert cpu_of(target_of(machine)) is not record
    register(record)
    assert cpu_of(target_of(machine)) is record
    written = re.findall(r"^    (\w+)=.*# \(.*; Made-up 1, 2027-01\)$", text, re.M)
    assert written == [f.field for f in found.of(Certainty.DIFFERS)], "each with its measurement"


def test_what_is_printed_is_all_that_a_package_needs(tmp_path, monkeypatch) -> None:
    (tmp_path / "made_up_cpu.py").write_text(found_of(PLANTED).python(WHERE))
    points = {"autotensor.cpus": {"madeup1": "made_up_cpu:NEW"}}
    monkeypatch.syspath_prepend(str(installed(tmp_path, "made-up", points)))
    found = cpu_of(target_of(PLANTED))
    assert (found.name, found.region) == ("madeup1", PLANTED.region)
    monkeypatch.delitem(sys.modules, "made_up_cpu")


def test_a_known_machine_differs_in_nothing() -> None:
    """Fields keep the nearest record's value if the difference changes no decision."""
    plain = replace(XEON, archs=("madeup1",), bandwidths=(86.4e9, 75e9, 24e9))
    near = replace(plain, l2_rate=26.0, region=2_100, clock=3.3e9, bandwidths=(85.8e9, 75e9, 21e9))
    for machine in (plain, near):
        found = found_of(machine)
        assert found.nearest is XEON
        assert [f.field for f in found.of(Certainty.DIFFERS)] == []
        assert new(found.python(WHERE)) == replace(XEON, name="madeup1", archs=("madeup1",))


def test_a_noisy_field_is_not_written() -> None:
    other = [replace(PLANTED, region=n) for n in (2_600, 6_000, 9_000)]
    found = characterise(target_of(PLANTED), [planted(c) for c in other])
    assert [f.field for f in found.of(Certainty.NOISY)] == ["region"]
    assert found.record.region == found.nearest.region
    text = found.python(WHERE)
    assert "region=" not in text
    said = "".join(line.removeprefix("#") for line in text.split("\n") if line.startswith("#"))
    assert re.search(r"too noisy to write; as \w+ has them: region \(6000 cycles .*passes \d+% apart\)", said)


@pytest.mark.parametrize(("cores", "said"), [(1.75, True), (0.1, False)])
def test_who_else_ran_is_said(cores: float, said: bool) -> None:
    found = characterise(target_of(PLANTED), [planted(PLANTED) | {"others": cores}] * 3)
    text = found.python(WHERE)
    assert ("# Other programs used 1.8 cores meanwhile" in text) is said
    assert new(text) == found.record


def test_small_noise_is_none() -> None:
    found = characterise(
        target_of(PLANTED), [planted(replace(PLANTED, region=n)) for n in (5_800, 6_000, 6_100)]
    )
    assert found.record.region == 6_000


@pytest.mark.parametrize(("undisturbed", "standing"), [(1, Certainty.MISSING), (2, Certainty.DIFFERS)])
def test_a_disturbed_probe_is_no_measurement(undisturbed: int, standing: Certainty) -> None:
    whole = planted(PLANTED)
    without = {n: v for n, v in whole.items() if n != "joining.t2"}
    found = characterise(target_of(PLANTED), [whole] * undisturbed + [without] * (3 - undisturbed))
    (join,) = (f for f in found.findings if f.field == "join")
    assert join.standing is standing
    if standing is Certainty.MISSING:
        assert "join (no undisturbed probe)" in found.python(WHERE)
        assert found.record.join == found.nearest.join


def test_one_thread_measures_no_team() -> None:
    found = characterise(target_of(PLANTED, cores=1), [planted(PLANTED, cores=1)] * 3)
    assert {"region", "join"} <= {f.field for f in found.of(Certainty.MISSING)}
    assert found.record.memory == PLANTED.bandwidths[-1], "all of one core"


def test_a_disturbed_clock_leaves_what_needs_none() -> None:
    found = characterise(target_of(PLANTED), [{"ways": 16}] * 3)
    assert {f.field for f in found.of(Certainty.DIFFERS)} == {"cache_bytes", "ways"}


def test_the_nearest_may_be_of_another_package() -> None:
    theirs = register(replace(PLANTED, name="their own", archs=("other",), region=3_000))
    found = found_of(PLANTED)
    assert found.nearest is theirs
    assert (
        new(found.python(WHERE))
        == found.record
        == replace(theirs, name="madeup1", archs=("madeup1",), region=6_000)
    )


def test_a_name_that_is_taken_is_not_taken_twice() -> None:
    register(replace(PLANTED, name="madeup1", archs=()))
    assert register(new(found_of(PLANTED).python(WHERE))).name == "madeup1-measured"


def test_infinity_is_imported_where_it_is_needed() -> None:
    halving, whole = found_of(HALVING), found_of(PLANTED)
    assert {halving.nearest.halves, whole.nearest.halves} == {inf}
    assert new(halving.python(WHERE)).halves == ZEN4.halves
    register(replace(PLANTED, name="halving", archs=("other",), halves=1.15))
    text = found_of(PLANTED).python(WHERE)
    assert "from math import inf\n" in text
    assert new(text).halves == inf


def test_a_processor_without_a_name_has_no_record() -> None:
    with pytest.raises(MeasureError, match=r"LLVM has no name for this processor.*newer llvmlite") as refused:
        measured_passes(replace(host(), arch="generic"))
    assert str(refused.value).count(". ") == 1


def test_ways_are_the_systems_or_as_many_pages_as_l1_has(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cpu_probes, "INDEX", tmp_path)
    assert l1_ways(target_of(PLANTED)) == 16
    (tmp_path / "ways_of_associativity").write_text("4\n")
    assert l1_ways(target_of(PLANTED)) == 4


@pytest.mark.parametrize("machine", [PLANTED, AVX2])
def test_tiles_of_products_fit_into_the_registers(machine: Cpu) -> None:
    one, *tall = product_tiles(target_of(machine))
    assert (one.rows, one.vectors) == (1, 4)
    assert [t.vectors for t in tall] == [2, 3, 4]
    assert set(tall) <= set(tiles(target_of(machine)))


def test_records_are_found_by_their_names() -> None:
    assert all(any(c is value for value in vars(records).values()) for c in (ZEN4, XEON, ZEN3))


@pytest.mark.slow
def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are plausible, even if other programs run; at least the figures of one core are
    measured."""
    monkeypatch.setattr(cpu_probes, "PASSES", 2)
    told: list[int] = []
    found = characterise(host(), measured_passes(host(), told.append))
    assert told == [0, 1]
    record = new(found.python(WHERE))
    assert 1 <= record.latency <= 10
    assert 0.5 <= record.multiplies <= 8
    assert 1e8 < record.clock < 8e9
    assert record.vector_bytes == host().vector_bytes
