"""The conformance tests of the `onnx` package through our backend, and the list of those that do not pass.

    unsupported.txt     test name | why

A test that is not listed must pass, by the package's own comparison. One that is listed must raise
Unsupported: a wrong number is never excused, and a listed test that passes fails.
"""

from __future__ import annotations

import functools
import glob
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import autotensor.integrations.onnx_backend as backend
from autotensor.frontends.onnx import Unsupported

LIST = Path(__file__).parent / "unsupported.txt"
KINDS = ("pytorch-converted", "pytorch-operator", "simple")  # tests that are files


@dataclass(frozen=True)
class Case:
    """One conformance test."""

    name: str
    model: onnx.ModelProto
    data: tuple[tuple[list[Any], list[Any]], ...]  # inputs, outputs
    rtol: float
    atol: float


@functools.cache
def listed() -> dict[str, str]:
    """Name → reason of the tests that are expected not to pass."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    return dict(tuple(part.strip() for part in line.split("|", 1)) for line in lines)


@functools.cache
def node_cases() -> tuple[Case, ...]:
    """The tests of single operators; making them takes some seconds."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of those who wrote the cases
        found = load_model_tests(kind="node")
    return tuple(
        Case(c.name, c.model, tuple((_plain(i), _plain(o)) for i, o in c.data_sets), c.rtol, c.atol)
        for c in found
    )


def file_cases(kind: str) -> Iterator[Case]:
    """The tests of a kind that are kept as files."""
    for c in load_model_tests(kind=kind):
        model = onnx.load(os.path.join(c.model_dir, "model.onnx"))
        sets = sorted(glob.glob(os.path.join(c.model_dir, "test_data_set_*")))
        data = tuple(
            (_read(d, "input", model.graph.input), _read(d, "output", model.graph.output)) for d in sets
        )
        yield Case(c.name, model, data, c.rtol, c.atol)


def _read(directory: str, what: str, values: Iterable[onnx.ValueInfoProto]) -> list[Any]:
    found = []
    for n, value in enumerate(values):
        path = os.path.join(directory, f"{what}_{n}.pb")
        if os.path.exists(path):
            found.append(_parsed(Path(path).read_bytes(), value.type))
    return found


def _parsed(data: bytes, kind: onnx.TypeProto) -> Any:
    if kind.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.WhichOneof("value") == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _plain(values: Iterable[Any]) -> list[Any]:
    return [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]


def assert_similar(wanted: Sequence[Any], found: Sequence[Any], rtol: float, atol: float) -> None:
    """The package's own comparison; it cannot look into sequences of scalars."""
    assert len(found) == len(wanted)
    for w, f in zip(wanted, found, strict=True):
        if isinstance(w, list) and isinstance(f, list):
            assert_similar(w, f, rtol, atol)
        elif w is None or f is None:
            assert w is f
        else:
            Runner.assert_similar_outputs([w], [f], rtol, atol)


def check(case: Case) -> str:
    """The mistake in the outcome of a test; "" if there is none."""
    try:
        prepared = backend.prepare(case.model)
        for inputs, outputs in case.data:
            assert_similar(outputs, prepared.run(inputs), case.rtol, case.atol)
    except Unsupported as error:
        return "" if case.name in listed() else f"{case.name}: {error}"
    except Exception as error:
        return f"{case.name}: {type(error).__name__}: {error}"
    return f"{case.name} passes: take it off {LIST.name}" if case.name in listed() else ""


def failures(cases: Iterable[Case]) -> list[str]:
    return [wrong for case in cases if (wrong := check(case))]
