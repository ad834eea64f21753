"""Several objects as one object: for both processors, it links as they do, and exports the right symbols."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from objects import ANSWERS, FUNCTIONS, OTHER, call, compiled_for, ours, zoo

from autotensor.base.errors import ArtifactError
from autotensor.runtime.linking import elf
from autotensor.runtime.linking.linker import host_machine, link
from autotensor.runtime.linking.merged_object import merged_object
from autotensor.runtime.linking.sections import lay_out


@ours
@pytest.mark.parametrize("opt", [0, 1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_it_answers_as_its_parts(opt: int, turned: bool) -> None:
    objects = zoo(host_machine(), opt)
    code = link("zoo", [merged_object("zoo", objects[::-1] if turned else objects, FUNCTIONS)], FUNCTIONS)
    for name, argument, answer in ANSWERS:
        assert call(code.addresses[name], argument) == answer, name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_its_layout_has_the_bytes_of_its_parts(machine: str) -> None:
    """The functions lie at other places, but refer to the same symbols. So each is found by its name."""
    objects = [elf.read(o) for o in zoo(machine)]
    merged = elf.read(merged_object("zoo", zoo(machine), FUNCTIONS))
    assert merged.machine == machine
    for layout in (lay_out(objects, machine), lay_out([merged], machine)):
        assert {name: layout.function(name) is not None for name in FUNCTIONS} == dict.fromkeys(
            FUNCTIONS, True
        )
    apart = [r.kind for o in objects for of in o.relocations.values() for r in of]
    together = [r.kind for of in merged.relocations.values() for r in of]
    assert sorted(apart) == sorted(together)
    sizes = [
        sum(s.size for o in found for s in o.sections.values() if s.is_code) for found in (objects, [merged])
    ]
    assert sizes[0] <= sizes[1] < sizes[0] + 64


def test_only_what_is_exported_can_be_seen() -> None:
    objects = zoo(host_machine())
    found = elf.read(merged_object("zoo", objects, ["counter"]))
    assert {s.name for s in found.symbols if s.name and not s.is_undefined} == {"counter"}
    assert "double_it" not in {s.name for s in found.symbols}  # the other object's: found inside
    assert {s.name for s in found.symbols if s.is_undefined and s.name} == {"llabs", "nobody_has_this"}


@ours
def test_two_of_them_with_equal_names_inside() -> None:
    first = merged_object("z", zoo(host_machine()), ["counter"])
    second = merged_object("z", zoo(host_machine()), ["floating"])
    code = link("both", [first, second], ["counter", "floating"])
    assert call(code.addresses["floating"], 4) == 10


@ours
def test_strong_definitions_win_and_two_are_refused() -> None:
    weak = compiled_for(OTHER.replace("define i64", "define weak i64").replace("1\n", "3\n"), host_machine())
    main, other = zoo(host_machine())
    for objects in ([weak, other, main], [main, other, weak]):
        code = link("z", [merged_object("z", objects, FUNCTIONS)], ["of_another_object"])
        assert call(code.addresses["of_another_object"], 1) == 2
    with pytest.raises(ArtifactError, match="one of its object files defines double_it a second time"):
        merged_object("z", [main, other, other], FUNCTIONS)


def test_weak_symbols_that_are_exported_stay_weak() -> None:
    weak = compiled_for(OTHER.replace("define i64", "define weak i64"), host_machine())
    found = elf.read(merged_object("z", [weak], ["double_it"]))
    (symbol,) = (s for s in found.symbols if s.name == "double_it")
    assert symbol.is_weak


def test_what_is_damaged_is_a_sentence() -> None:
    main, other = zoo(host_machine())
    for damaged in (b"", main[:100], b"MZ" + main[2:]):
        with pytest.raises(ArtifactError, match=r"^z: one of its object files (is|has) .*"):
            merged_object("z", [other, damaged], [])
    with pytest.raises(ArtifactError, match="should define nothing, which none does"):
        merged_object("z", [main, other], ["nothing"])
    foreign = zoo("aarch64" if host_machine() == "x86_64" else "x86_64")[0]
    with pytest.raises(ArtifactError, match="is for another processor than the rest"):
        merged_object("z", [main, foreign], [])


@pytest.mark.parametrize("linker", ["ld", "ld.lld", "ld.gold"])
def test_others_read_it(linker: str, tmp_path: Path) -> None:
    if not shutil.which(linker):
        pytest.skip(f"{linker} is not here")
    (tmp_path / "zoo.o").write_bytes(merged_object("zoo", zoo(host_machine()), FUNCTIONS))
    done = subprocess.run(
        [linker, "--fatal-warnings", "-shared", "zoo.o", "-o", "zoo.so"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
