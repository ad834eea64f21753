"""The compiler's output for the built-in models' tasks is the same as before, byte for byte (see
fingerprints.py).

pytest tests/identity                          a sample: a few tasks on each target
pytest tests/identity -m slow                  all tasks of all models on all targets: seven minutes of CPU
pytest tests/identity -m slow --update-golden  writes what is made now; the commit says what changed and why
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import fingerprints
import pytest
from fingerprints import MODELS, SAMPLE, TARGETS, differences, read, table, write

from autotensor.codegen.llvm import backend
from autotensor.lowering.passes import promote_registers
from autotensor.search.score import features
from schedules import generate
from schedules.rules import convolution

ONE_IN = 24  # tasks of the sample that are looked at on a target, other ones on each


def test_a_sample_is_made_as_before(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("the whole table is written by pytest tests/identity -m slow --update-golden.")
    found = [
        f"{name}: {line}"
        for n, (name, target) in enumerate(TARGETS.items())
        for line in differences(read(name), table(SAMPLE, target, n, ONE_IN), whole=False)
    ]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TARGETS)
def test_everything_is_made_as_before(name: str, request: pytest.FixtureRequest) -> None:
    now = table(MODELS.names(), TARGETS[name])
    if request.config.getoption("--update-golden"):
        write(name, now)
    found = differences(read(name), now)
    assert not found, "\n".join(found)


def test_every_target_has_the_same_tasks_as_others_of_its_kind() -> None:
    known = {name: list(read(name)) for name in TARGETS}
    assert all(known[name] == known["opencl-gpu" if t.is_gpu else "znver4"] for name, t in TARGETS.items())


@pytest.fixture
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sketches are made again, and the features of every task are hashed."""
    monkeypatch.setattr(fingerprints, "FEATURES_OF", 1)
    yield
    _forget()


def _forget() -> None:
    generate._preferred.cache_clear()
    generate._generated.cache_clear()


PLANTED = [
    (convolution, "MAX_ROWS", 12, {"trace", "sketches", "ir", "source", "features"}),
    (promote_registers, "MAX_BYTES", 0, {"ir"}),
    (backend, "ABI_ALIGNMENT", 64, {"source"}),
    (features, "LEAST_SHARE", 0.5, {"features"}),
]


@pytest.mark.usefixtures("nothing_remembered")
@pytest.mark.parametrize(("module", "constant", "value", "columns"), PLANTED, ids=[p[1] for p in PLANTED])
def test_another_constant_is_found(
    module: ModuleType, constant: str, value: float, columns: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = table(["small_cnn"], TARGETS["x86-64-v4"])
    monkeypatch.setattr(module, constant, value)
    _forget()
    found = differences(before, table(["small_cnn"], TARGETS["x86-64-v4"]))
    assert {line.split(": ")[1].removesuffix(" differs") for line in found} == columns


def test_tasks_that_come_and_go_are_found() -> None:
    row, other = ("mlp/0", "1", "2", "3", "4", "-"), ("mlp/1", "1", "2", "3", "4", "-")
    assert differences({"a": row, "b": other}, {"b": other, "c": row}) == [
        "mlp/0 (a) is no task any more",
        "mlp/0 (c) is new",
    ]
    assert differences({"a": row, "b": other}, {"b": other}, whole=False) == []
