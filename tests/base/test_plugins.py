"""Targets that others bring: registered, or found by an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import entry_points
import numpy as np
import pytest

import autotensor as at
from autotensor import te
from autotensor.base import plugins
from autotensor.base.errors import TargetError
from autotensor.base.plugins import TargetPlugin, known_kinds, register
from autotensor.base.target import parse

MODULE = """
from autotensor.base.plugins import TargetPlugin
from autotensor.base.target import Target
from autotensor.codegen.interp.interpreter import run_program
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.simulated import Hosted

PROGRAMS = {}

def compile(program, target, *, name, asm=False, cache=None):
    PROGRAMS[name] = program
    args = tuple(ArgSpec(b.name, role.value, b.shape, str(b.dtype)) for b, role in program.args)
    return Artifact(name, target, name, None, args, ())

def open(artifact, threads):
    return Hosted(artifact, lambda arrays: run_program(PROGRAMS[artifact.name], arrays))

PLUGIN = TargetPlugin("abacus", lambda options: Target("abacus", ",".join(options)), compile, open)
WRONG = "a string"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another installed package with two entry points, one of them wrong."""
    (tmp_path / "abacus_target.py").write_text(MODULE)
    names = {
        "abacus": "abacus_target:PLUGIN",
        "broken": "abacus_target:WRONG",
        "lyre": "abacus_target:PLUGIN",
    }
    entry_points.installed(tmp_path, "abacus-target", {"autotensor.targets": names})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_REGISTERED", dict(plugins._REGISTERED))
    yield tmp_path
    sys.modules.pop("abacus_target", None)


def test_an_entry_point_is_found_compiled_for_and_run(installed: Path) -> None:
    assert {"abacus", "vdlc"} <= set(known_kinds())
    A = te.placeholder((5,), name="A")
    f = at.build([A, te.compute((5,), lambda i: A[i] * 2.0, name="B")], target="abacus -beads")
    assert f.artifact.target.arch == "-beads"
    assert f(np.arange(5, dtype=np.float32)).tolist() == [0, 2, 4, 6, 8]


def test_an_entry_point_that_gives_something_else(installed: Path) -> None:
    with pytest.raises(
        TargetError, match=r"'broken' of autotensor.targets gives 'a string', not a TargetPlugin"
    ):
        parse("broken")
    with pytest.raises(TargetError, match=r"'lyre' of autotensor.targets gives a plug-in of kind 'abacus'"):
        parse("lyre")


def test_names_are_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    one = TargetPlugin("one", parse, parse, parse)
    assert register(one) is one
    assert register(one) is one
    with pytest.raises(TargetError, match=r"'one' is registered twice"):
        register(TargetPlugin("one", parse, parse, parse))


def test_unknown_kinds_name_the_plug_ins() -> None:
    with pytest.raises(TargetError, match=r"'quantum' is unknown. Known: llvm, .*vdlc"):
        parse("quantum")
