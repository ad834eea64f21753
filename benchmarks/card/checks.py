"""Items that are right or wrong: the card itself, kernels of the tests, operators, whole models.

Each `run` returns a row of facts, or raises an error that failures.py can name.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from autotensor import te
from autotensor.api.models import default_traces, link_model, plan_model
from autotensor.base.target import CUDA_ARCHS, Target
from autotensor.compiler import compile_state, compile_trace
from autotensor.graph import evaluate as graph_meaning
from autotensor.graph.ir import Graph
from autotensor.models import MODELS, bert, mlp, resnet
from autotensor.models.transformer import Size
from autotensor.operators import OPERATORS
from autotensor.runtime.device.devices import device_of, open_device
from autotensor.runtime.open_artifact import open_artifact
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from card.failures import CAPABILITY, Wrong, compare
from schedules.generate import default_trace

Row = dict[str, Any]
# largest errors, as a share of the largest result, in float32 and in types of 16 bits
NEAR, NEAR_16 = 2e-4, 2e-2
TENSOR_CORES_FROM = 80


# -- the card ------------------------------------------------------------------------------------------------


def the_card(target: Target) -> Row:
    """Driver, limits, libraries. Raises Wrong if the card can do less than the target says."""
    device = device_of(target)
    row: Row = {
        "name": device.name,
        "memory": device.identity.memory,
        "units": device.identity.units,
        "driver": device.identity.driver,
        "limits": device.limits,  # type: ignore[attr-defined]
        "versions": {name: _version(name) for name in ("cupy", "torch", "numpy")},
    }
    if target.kind == "cuda":
        row["capability"] = has = device.capability  # type: ignore[attr-defined]
        wanted = target.capability
        if has < wanted:
            raise Wrong(CAPABILITY, f"{device.name} is of capability {has / 10}, {target.arch} was asked for")
    return row


def own_target() -> str:
    """The target of this machine's card, with the card's own limits. Raises TargetError if there is no
    card."""
    device = open_device("cuda")
    has, limits = device.capability, device.limits  # type: ignore[attr-defined]
    arch = max(n for n in (int(a.removeprefix("sm_")) for a in CUDA_ARCHS) if n <= has)
    return f"cuda -arch=sm_{arch} -cores={limits['num_cores']} -shared-bytes={limits['max_shared_bytes']}"


def _version(module: str) -> str | None:
    found = sys.modules.get(module)
    return None if found is None else str(getattr(found, "__version__", "?"))


# -- kernels -------------------------------------------------------------------------------------------------


def kernel_names(target: Target) -> list[str]:
    from gpu_cases import ANYWHERE, TENSOR_CORES

    has = target.capability >= TENSOR_CORES_FROM
    return [*ANYWHERE, *(TENSOR_CORES if has else ())]


def kernel(target: Target, name: str) -> Row:
    """A schedule of tests/kit/gpu_cases.py against the reference, on small whole numbers. Results must be
    equal bit for bit, except for functions like exp."""
    from gpu_cases import CASES

    schedule = CASES[name]()
    inputs = random_inputs(schedule.dag, 0, "integer")
    wanted = evaluate(schedule.dag, inputs)
    f = open_artifact(compile_state(schedule.state, target, name))
    found = f(**inputs)
    parts = found if isinstance(found, tuple) else (found,)
    names = [a.name for a in f.artifact.args if a.role == "output"]
    return {"worst": max(compare(x, np.asarray(wanted[n]), 1e-6) for x, n in zip(parts, names, strict=True))}


def operator_names() -> list[str]:
    return [f"{name}-{n}" for name, op in OPERATORS.items() for n in range(len(op.cases))]


def operator(target: Target, item: str) -> Row:
    """A sample of an operator, under its default schedule, against its NumPy reference."""
    name, _, number = item.rpartition("-")
    op = next(o for n, o in OPERATORS.items() if n == name)
    case = op.cases[int(number)]
    arrays = case.arrays(np.random.default_rng(int(number)))
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{n}") for n, a in enumerate(arrays)]
    wanted = np.asarray(op.reference(*arrays, **case.attrs))
    f = untuned([*inputs, op.compute(*inputs, **case.attrs)], target, name)
    found = f(*(np.array(a, order="C") for a in arrays))
    return {"worst": compare(found, wanted, NEAR if wanted.dtype == np.float32 else NEAR_16)}


def untuned(args: list[te.Tensor], target: Target, name: str) -> Any:
    dag = ComputeDAG.of(args)
    return open_artifact(compile_trace(dag, default_trace(dag, target), target, name))


# -- models --------------------------------------------------------------------------------------------------

MODEL_NAMES = ("mlp", "resnet18", "transformer_block")
_SMALL_BLOCK = Size(layers=1, hidden=32, heads=2, vocabulary=50, positions=20)


def model_of(name: str, small: bool) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """A graph and its inputs. They are small for a target that executes them slowly."""
    rng = np.random.default_rng(0)
    match name:
        case "mlp":
            graph = mlp.build(sizes=(64, 32, 10) if small else mlp.SIZES)
            return graph, [rng.standard_normal((1, 64 if small else mlp.SIZES[0])).astype(np.float32)]
        case "resnet18":
            image = 32 if small else 224
            return resnet.build(18, image=image), list(resnet.inputs(rng, image=image).values())
        case "transformer_block":
            size = _SMALL_BLOCK if small else Size(1, 768, 12, vocabulary=1000, positions=128)
            tokens = 12 if small else 128
            return bert.build(1, tokens=tokens, size=size), list(bert.inputs(rng, 1, tokens, size).values())
    model = MODELS.get(name)
    return model.build(), list(model.inputs(rng).values())


def model(target: Target, name: str, small: bool) -> Row:
    """A whole model, untuned, against its operators in NumPy. It runs twice, so that a CUDA graph is made and
    used."""
    graph, arrays = model_of(name, small)
    wanted = graph_meaning.evaluate(graph, *arrays)
    plan = plan_model(graph, target)
    f = open_artifact(link_model(plan, default_traces(plan)))
    worst = 0.0
    for _ in range(3):
        found = f(*arrays)
        parts = found if isinstance(found, tuple) else (found,)
        worst = max(worst, *(compare(x, np.asarray(y), NEAR) for x, y in zip(parts, wanted, strict=True)))
    return {"worst": worst, "kernels": len(plan.groups)}


__all__ = ["kernel", "kernel_names", "model", "model_of", "operator", "operator_names", "the_card", "untuned"]
