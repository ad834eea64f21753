"""Compiled functions can be pickled for other processes, and copied."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import operator
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
from runtime_kernels import N, add_artifact, prepared_artifact

import autotensor as at
from autotensor import te
from autotensor.base.errors import ArtifactError
from autotensor.runtime.module import Module
from autotensor.runtime.modules_by_shape import ByShape

RNG = np.random.default_rng(0)
A, B = (RNG.random(N, dtype=np.float32) for _ in range(2))


@pytest.fixture(autouse=True)
def nothing_is_ignored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No "Exception ignored in …" when objects are deleted."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    yield
    gc.collect()
    assert not ignored


def there_and_back(f: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(f, protocol))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_module_pickles(protocol: int) -> None:
    module = Module(add_artifact(), threads=3)
    again = there_and_back(module, protocol)
    assert (again(A, B) == module(A, B)).all()
    assert (again.threads, str(again.signature)) == (3, str(module.signature))


def test_bound_constants_travel_prepared_and_unbound_ones_stay_free() -> None:
    free = Module(prepared_artifact())
    name = next(a.name for a in free.args if a.role == "constant")
    weights = RNG.random(free.args[[a.name for a in free.args].index(name)].shape, dtype=np.float32)
    bound = free.bind(**{name: weights})
    inputs = [RNG.random(a.shape, dtype=np.float32) for a in bound.args if a.role == "input"]
    want = bound(*inputs)
    for way in (there_and_back, copy.copy, copy.deepcopy):
        assert (way(bound)(*inputs) == want).all()
        assert [a.name for a in way(free).args] == [a.name for a in free.args]
        assert (way(free).bind(**{name: weights})(*inputs) == want).all()


def test_a_deep_copy_is_a_function_of_its_own_with_the_same_weights() -> None:
    module = Module(add_artifact(), threads=2)
    other = copy.deepcopy({"model": module})["model"]
    other.threads = 1
    assert (module.threads, other.threads) == (2, 1)
    del module
    gc.collect()
    assert (other(A, B) == A + B).all()


def test_several_shapes_travel_together() -> None:
    def doubled(n: int) -> Module:
        x = te.placeholder((n,), name="x")
        return at.build([x, te.compute((n,), lambda i: x[i] * 2.0, name="y")])

    both = ByShape([doubled(3), doubled(5)])
    for way in (there_and_back, copy.copy, copy.deepcopy):
        again = way(both)
        assert isinstance(again, ByShape)
        assert len(again.modules) == 2
        for n in (3, 5):
            assert (again(np.ones(n, np.float32)) == 2).all()


def test_what_was_loaded_from_a_file_outlives_the_file(tmp_path: Any) -> None:
    Module(add_artifact()).save(tmp_path / "add.atm")
    data = pickle.dumps(at.load(tmp_path / "add.atm"))
    (tmp_path / "add.atm").unlink()
    assert (pickle.loads(data)(A, B) == A + B).all()


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_other_processes_take_a_model_as_an_argument(method: str) -> None:
    weights = RNG.standard_normal((8, 8)).astype(np.float32)
    model = at.compile_model(at.ops.relu(at.ops.matmul(at.input((4, 8)), weights)))
    given = RNG.standard_normal((4, 8)).astype(np.float32)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        answers = list(pool.map(operator.call, [model] * 4, [given] * 4))
    assert all((a == model(given)).all() for a in answers)


def test_a_damaged_pickle_is_one_sentence() -> None:
    function, (data, threads) = Module(add_artifact()).__reduce__()
    with pytest.raises(ArtifactError, match=r"^the pickled module "):
        function(data[: len(data) // 2], threads)
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    with pytest.raises(ArtifactError, match=r"^the pickled module is damaged: "):
        function(bytes(changed), threads)


def test_the_pickle_is_the_file(tmp_path: Any) -> None:
    module = Module(add_artifact())
    module.save(tmp_path / "f.atm")
    _, (data, _) = module.__reduce__()
    assert data == (tmp_path / "f.atm").read_bytes()


@pytest.mark.opencl
def test_a_module_of_a_device_travels() -> None:
    x = te.placeholder((N,), name="x")
    module = at.build([x, te.compute((N,), lambda i: x[i] * 2.0, name="y")], target="opencl")
    for way in (there_and_back, copy.copy, copy.deepcopy):
        assert (way(module)(A) == A * 2).all()
