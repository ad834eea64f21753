"""No module may take the place of a public function: importing everything changes no public name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import autotensor
import schedules
import tuning_db
from autotensor import te
from autotensor.base.target import Target
from autotensor.graph.ir import Graph
from autotensor.schedule.schedule import Schedule, StageRef

OPTIONAL = {"autotensor.frontends.onnx": "onnx", "autotensor.integrations.onnx": "onnx"}  # and what it needs
OPTIONAL |= {
    f"autotensor.{name}": "torch"
    for name in (
        "frontends.torch",
        "integrations.torch_compile",
        "integrations.compiled_part",
        "integrations.strided_results",
    )
}


def all_modules():
    """Every module whose optional package, if any, is installed."""
    missing = tuple(m for m, needed in OPTIONAL.items() if importlib.util.find_spec(needed) is None)
    for package in (autotensor, schedules, tuning_db):
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        yield from (m.name for m in found if not m.name.startswith(missing))


def test_importing_everything_replaces_no_public_name():
    before = {name: getattr(autotensor, name) for name in autotensor.__all__}
    for name in all_modules():
        importlib.import_module(name)
    for name, value in before.items():
        assert getattr(autotensor, name) is value, name
        assert name == "te" or not isinstance(value, ModuleType), f"{name} is a module"


def test_public_names_are_all_there():
    assert set(autotensor.__all__) <= set(dir(autotensor))
    for name in ("build", "lower", "tune", "load", "input", "call", "compile_model", "create_schedule"):
        assert callable(getattr(autotensor, name))


def test_every_public_name_says_what_it_is():
    named = {f"at.{n}": getattr(autotensor, n) for n in autotensor.__all__}
    named |= {f"te.{n}": getattr(te, n) for n in te.__all__}
    for owner in (Schedule, StageRef, Graph, Target, te.Tensor, te.Compute):
        named |= {f"{owner.__name__}.{n}": v for n, v in vars(owner).items() if not n.startswith("_")}
    silent = [
        n for n, v in named.items() if inspect.isroutine(v) or inspect.isclass(v) if not inspect.getdoc(v)
    ]
    assert not silent
    assert te.sum.__name__ == "sum"


def test_every_module_imports_alone():
    """In reverse order, with one process for each package. So no module depends on imports of an earlier
    one."""
    for top in ("autotensor.api", "autotensor.cli", "autotensor.search", "autotensor.graph"):
        names = sorted((n for n in all_modules() if n.startswith(top)), reverse=True)
        code = f"import importlib\nfor n in {names!r}: importlib.import_module(n)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
