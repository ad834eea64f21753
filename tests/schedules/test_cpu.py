"""Records of processors: each field has a measurement and a reader, each target gets the right record, and
mistakes are refused."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from entry_points import installed

from autotensor.base.errors import TargetError
from autotensor.base.target import Target, parse
from schedules import cpu, method_costs
from schedules.cpu import (
    NEOVERSE,
    RECORDS,
    V2,
    XEON,
    ZEN1,
    ZEN3,
    ZEN4,
    ZEN5,
    Cpu,
    cpu_of,
    distance,
)
from schedules.method_costs import Tiles, Winograd
from schedules.prior.rates import Rates

ROOT = Path(__file__).parents[2]
SOURCE = "\n".join(Path(file).read_text() for file in (method_costs.__file__, cpu.__file__))
# names on processors that are not fields, and the reasons
ELSEWHERE = {
    "PART": "how a sum is rounded is the same on every processor",
}


@pytest.fixture
def records() -> Iterator[list[Cpu]]:
    """The known records; a test's own records are removed after it."""
    before = list(RECORDS)
    yield RECORDS
    RECORDS[:] = before
    cpu_of.cache_clear()


def unmeasured(source: str) -> list[str]:
    """Fields of records, and of the class, without the month of a measurement next to them."""
    lines, found = source.split("\n"), []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value and node.col_offset:
                pass
            case ast.keyword(arg=str(name)) if node.col_offset == 4:
                pass
            case _:
                continue
        text, above = "", node.lineno - 2
        while lines[above].lstrip().startswith("#"):
            text, above = lines[above] + text, above - 1
        text += " ".join(lines[node.lineno - 1 : node.end_lineno])
        if name not in ("name", "archs") and not re.search(r"20\d\d-\d\d\)|\(by definition\)", text):
            found.append(name)
    return found


def test_beside_every_field_stands_its_measurement() -> None:
    assert unmeasured(SOURCE) == []


@pytest.mark.parametrize("field", ["region", "window_spill", "panel_wait", "line"])
def test_a_missing_measurement_is_found(field: str) -> None:
    bare = [re.sub("20..-..", "", line) if f" {field}" in line else line for line in SOURCE.split("\n")]
    planted = "\n".join(bare).replace("(Zen 4, 3.5 GHz, 2026-11)", "").replace("Rapids, 2026-11)", "")
    assert field in unmeasured(planted)


def test_every_field_is_read_somewhere() -> None:
    code = "\n".join(
        p.read_text()
        for room in ("schedules", "autotensor/search")
        for p in (ROOT / room).rglob("*.py")
        if p.name not in ("cpu.py", "method_costs.py")
    )
    features = {"name", "archs", "vector_bytes", "vector_registers", "multiplies", "cache_bytes"}
    names = {f.name for kind in (Cpu, Tiles, Winograd) for f in fields(kind)} - features
    assert sorted(n for n in names if not re.search(rf"\.{n}\b", code)) == []


def test_no_constant_of_a_processor_stands_elsewhere() -> None:
    named = re.compile(r"^([A-Z][A-Z0-9_]*)(?: *:.*)? = .*# .*(Zen|Xeon|Sapphire|Neoverse)", re.M)
    stray = {
        found[1]
        for room in ("schedules", "autotensor/search")
        for p in (ROOT / room).rglob("*.py")
        for found in named.finditer(p.read_text())
    }
    assert stray - set(ELSEWHERE) == set()


def test_every_record_is_listed() -> None:
    assert [c.name for c in vars(cpu).values() if isinstance(c, Cpu) and c not in cpu.OURS] == []


@pytest.mark.parametrize(
    ("target", "record"),
    [
        ("znver4", ZEN4),
        ("znver5", ZEN5),
        ("sapphirerapids", XEON),
        ("icelake-server", XEON),
        ("x86-64-v4", XEON),
        ("x86-64-v3", ZEN3),
        ("znver1", ZEN1),
        ("haswell", ZEN3),
        ("x86-64-v2", V2),
        ("neoverse-n1", NEOVERSE),
        ("cortex-a76", NEOVERSE),  # by its features
        ("nehalem", V2),
        ("znver5 -mattr=+avx2,+fma", ZEN3),  # a name does not make registers wider
        ("znver4 -mattr=+avx2,+fma", ZEN3),
    ],
)
def test_the_record_of_a_target(target: str, record: Cpu) -> None:
    assert cpu_of(parse(f"llvm -mcpu={target}")) is record


@pytest.mark.parametrize(
    ("arch", "width", "registers", "caches", "multiplies", "record"),
    [
        ("znver6", 64, 32, (48 << 10, 1 << 20), None, ZEN5),
        ("bigrapids", 64, 32, (48 << 10, 2 << 20), None, XEON),
        ("znver4c", 64, 32, (32 << 10, 1 << 20), 1.02, ZEN4),  # as calibrated: one whole register a cycle
        ("arrowlake", 32, 16, (48 << 10, 3 << 20), 3.0, ZEN3),
        ("", 16, 16, (32 << 10, 1 << 20), None, V2),
    ],
)
def test_without_a_record_the_nearest(
    arch: str, width: int, registers: int, caches: tuple[int, ...], multiplies: float | None, record: Cpu
) -> None:
    target = Target("llvm", arch, vector_bytes=width, vector_registers=registers, cache_bytes=caches)
    assert cpu_of(target, multiplies) is record


def test_distance_is_doublings_of_features() -> None:
    same = Target("llvm", vector_bytes=64, vector_registers=32, cache_bytes=ZEN4.cache_bytes)
    assert distance(ZEN4, same, 1.0) == 0.0
    assert distance(ZEN4, same) == 2.0  # two whole registers a cycle
    assert distance(ZEN4, replace(same, vector_bytes=32), 1.0) == 4.0
    assert distance(ZEN4, replace(same, vector_registers=16), 1.0) == 2.0
    assert distance(ZEN4, replace(same, cache_bytes=(64 << 10, 2 << 20)), 1.0) == 2.0


def test_a_record_from_outside_takes_the_place_of_ours(records: list[Cpu]) -> None:
    mine = replace(ZEN4, name="mine", archs=("znver4", "znver9"), clock=1e9)
    assert cpu.register(mine) is cpu.register(mine) is cpu_of(parse("llvm -mcpu=znver4"))
    target = parse("llvm -mcpu=znver4")
    assert Rates.guess(target).flops == 2 * 16 * 1e9
    with pytest.raises(TargetError, match=r"processor 'mine' is registered twice\. .*another name"):
        cpu.register(replace(mine, clock=2e9))
    with pytest.raises(TargetError, match="'zen9' is not a record of a processor"):
        cpu.register("zen9")  # type: ignore[arg-type]


def test_a_record_of_impossible_width_is_refused() -> None:
    with pytest.raises(TargetError, match=r"processor 'odd' has vectors of 48 bytes\. A register has 16, 32"):
        replace(ZEN4, name="odd", vector_bytes=48)


def test_a_record_has_vectors_as_wide_as_its_processors(records: list[Cpu]) -> None:
    narrow = replace(ZEN3, name="narrow", archs=("znver9", "znver4"))
    with pytest.raises(TargetError, match=r"has vectors of 32 bytes, but znver4 has 64\. Leave znver4 out"):
        cpu.register(narrow)
    assert records[0] is ZEN4
    assert cpu.register(replace(narrow, archs=("znver9",))) is records[0]


def test_two_from_outside_are_not_for_one_processor(records: list[Cpu]) -> None:
    cpu.register(replace(ZEN4, name="mine", archs=("znver9",)))
    with pytest.raises(TargetError, match=r"'other' and 'mine' are both for znver9\. Leave it out of one\."):
        cpu.register(replace(ZEN4, name="other", archs=("znver9",)))


def checked(table: Sequence[Cpu]) -> None:
    """Raises an error for a mistake in a table of our records."""
    assert len({c.name for c in table}) == len(table), "two records have one name"
    for n, one in enumerate(table):
        for arch in one.archs:
            cpu.check_arch(one, arch, table[:n])


def test_records_of_ours_are_each_for_processors_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = cpu.OURS
    checked(ours)
    for planted in (replace(ZEN5, name="planted"), replace(ZEN3, name="planted", archs=("znver5",))):
        table = (*ours, planted)
        monkeypatch.setattr(cpu, "OURS", table)
        with pytest.raises(TargetError, match="znver5"):
            checked(table)


def test_an_entry_point_is_asked_for_what_nobody_knows(
    records: list[Cpu], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_cpus.py").write_text(
        "from dataclasses import replace\nfrom schedules.cpu import ZEN5\n"
        "ZEN7 = replace(ZEN5, name='zen7', archs=('znver7',))\n"
    )
    names = {
        "znver7": "their_cpus:ZEN7",
        "znver8": "their_cpus:ZEN7",
        "znver4": "their_cpus:NO",
        "bad": "their_cpus:replace",
    }
    monkeypatch.syspath_prepend(str(installed(tmp_path, "their-cpus", {"autotensor.cpus": names})))
    target = replace(parse("llvm -mcpu=znver5"), arch="znver7")
    assert cpu_of(parse("llvm -mcpu=znver4")) is ZEN4, "nobody is asked about those of ours"
    assert "their_cpus" not in sys.modules
    assert cpu_of(target).name == "zen7"
    with pytest.raises(
        TargetError, match=r"'znver8' of .* gives 'zen7', which is for znver7\. Add znver8 to"
    ):
        cpu_of(replace(target, arch="znver8"))
    with pytest.raises(TargetError, match=r"'bad' of autotensor.cpus gives <function .*, not a record of a"):
        cpu_of(replace(target, arch="bad"))
    monkeypatch.delitem(sys.modules, "their_cpus")


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="latencies"):
        replace(ZEN4, latencies=3)
