"""`compare` compares a quantised ONNX file with the float file that it was made from, or a model with its own
form in 16 bits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.api.comparing.agreement import Agreement, Array, Sums
from autotensor.api.from_onnx import OnnxModel, load_onnx
from autotensor.api.log import Log
from autotensor.base.deadline import Deadline
from autotensor.base.errors import InputError
from autotensor.base.target import HALVES, Target, parse
from autotensor.runtime.timing_lock import timing_by

if TYPE_CHECKING:
    import onnx

    from autotensor.api.comparing.onnx_layers import Layers
    from autotensor.frontends.onnx.onnx_file import Loaded

Batch = Mapping[str, Array]

TURNS = (5, 50)  # least and greatest number of times that both models are timed
BUDGET_S = 2.0  # seconds of timing, once the least number of turns is done
PATIENCE_S = 60.0  # longest wait for other processes that are timing something


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor of both models."""

    name: str  # name in the model in floats
    op: str  # the operator that makes it in this model
    shape: tuple[int, ...]  # shape in one batch
    agreement: Agreement  # over all batches


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a quantised model with its model in floats."""

    layers: tuple[Compared, ...]  # in the order of the model in floats
    alone: tuple[str, ...]  # products of the model in floats without a counterpart in the quantised model
    results: tuple[Compared, ...]  # results of both models, each run as a whole
    batches: int
    float_s: float  # median time of one batch
    quantised_s: float
    speedup: float  # median ratio of the times in one turn, float / quantised

    @property
    def worst(self) -> Compared | None:
        """The layer with the most noise."""
        return min(self.layers, key=_signal, default=None)


def compare(
    float_model: str | Path | bytes | onnx.ModelProto,
    quantised: str | Path | bytes | onnx.ModelProto | None,
    data: Mapping[str, Any],
    target: str | Target | None = None,
    *,
    db: Log = None,
) -> Comparison:
    """Compares a model with its quantised form, layer by layer: how near the values are, and how much time is
    gained.

    data: the inputs by name. If the model fixes its number of samples, the arrays may hold several times as
    many; they are then given one batch after the other. Layers are values of both models as their files
    define them. Each model computes a layer's inputs itself, so an early error is also seen in later layers.
    quantised: None compares the model with itself under the target's numerics, bf16 or fp16, as a whole.
    Raises InputError for models whose inputs or outputs differ, and the errors of `OnnxModel`.
    """
    wide = parse(target)
    first_model = load_onnx(float_model)
    if quantised is None:
        return _in_16_bits(first_model, data, wide, db)
    models = first_model, load_onnx(quantised)
    try:
        from autotensor.api.comparing.onnx_layers import layers_of
    except ImportError as error:
        raise InputError(
            "comparing .onnx files needs the package onnx, which is not installed.",
            fix="pip install 'autotensor[onnx]'.",
        ) from error

    batches = _batches(models[0], models[1], data)
    first, second = (layers_of(m) for m in models)
    if first.quantised:
        raise InputError(
            f"{models[0].name} is quantised already.",
            fix="Give the model in floats first, the quantised one second.",
        )
    layers, alone = _layers(first, second, batches, wide, db)
    return _whole((models[0], wide), (models[1], wide), batches, db, layers, alone)


def _in_16_bits(model: Loaded, data: Mapping[str, Any], target: Target, db: Log) -> Comparison:
    """Compares a model of floats with the same model under the target's numerics."""
    if target.numerics not in HALVES:
        raise InputError(
            f"{model.name} is compared with itself under numerics {target.numerics!r}.",
            fix="Give a second model, or --numerics bf16 or fp16.",
        )
    fast = replace(target, numerics="fast", keep_float32=())
    return _whole((model, fast), (model, target), _batches(model, model, data), db)


def _whole(
    first: tuple[Loaded, Target],
    second: tuple[Loaded, Target],
    batches: Sequence[Batch],
    db: Log,
    layers: tuple[Compared, ...] = (),
    alone: tuple[str, ...] = (),
) -> Comparison:
    """Compares two models, each run as a whole on its own target."""
    whole = [OnnxModel(model, target, db=db) for model, target in (first, second)]
    results = _results(whole[0], whole[1], batches)
    seconds = _in_turns([lambda m=m: m(**batches[0]) for m in whole])  # type: ignore[misc]
    return Comparison(
        layers,
        alone,
        results,
        len(batches),
        median(seconds[0]),
        median(seconds[1]),
        median(a / b for a, b in zip(*seconds, strict=True)),
    )


def _signal(c: Compared) -> float:
    return -math.inf if math.isnan(c.agreement.snr_db) else c.agreement.snr_db


# -- inputs ------------------------------------------------------------------------------------------------


def _batches(model: Loaded, quantised: Loaded, data: Mapping[str, Any]) -> list[Batch]:
    """The data, cut along the first axis into batches that the model takes at once."""
    from autotensor.frontends.onnx.signature import inputs_of

    if not isinstance(data, Mapping):
        raise InputError(f"data is a {type(data).__name__}, not a dictionary of inputs by name.")
    wanted = inputs_of(model)
    names, others = ({a.name for a in inputs_of(m)} for m in (model, quantised))
    if names != others:
        raise InputError(
            f"{model.name} takes {_listed(names)}, {quantised.name} takes {_listed(others)}.",
            fix="Compare a model with its own quantised form.",
        )
    if names != set(data):
        raise InputError(f"the data hold {_listed(data)}; {model.name} takes {_listed(names)}.")
    arrays = {name: np.asarray(a) for name, a in data.items()}
    if empty := [name for name, a in arrays.items() if a.size == 0]:
        raise InputError(f"the data hold no element of {empty[0]!r}.")
    counts = {a.name: _count(a.dims, arrays[a.name].shape) for a in wanted}
    several = {n for n in counts.values() if n > 1}
    if len(several) > 1:
        said = ", ".join(f"{n} of {name}" for name, n in sorted(counts.items()))
        raise InputError(f"the data hold different numbers of batches: {said}.")
    return [
        {name: a if counts[name] == 1 else np.split(a, counts[name])[n] for name, a in arrays.items()}
        for n in range(max(several, default=1))
    ]


def _count(dims: Sequence[int | str] | None, shape: tuple[int, ...]) -> int:
    """The number of batches in an array of this shape; 1 if the model itself checks the shape."""
    if not dims or len(dims) != len(shape) or not isinstance(dims[0], int) or dims[0] < 1:
        return 1
    return shape[0] // dims[0] if shape[0] % dims[0] == 0 else 1


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"


# -- values ------------------------------------------------------------------------------------------------


def _layers(
    floats: Layers, quantised: Layers, batches: Sequence[Batch], target: str | Target | None, db: Log
) -> tuple[tuple[Compared, ...], tuple[str, ...]]:
    """Every layer that both models have, and the names of products that only the first model has."""
    from autotensor.api.comparing.onnx_layers import asking_for, by_name, by_order

    pairs = by_name(floats, quantised)
    mine = [p for p in floats.products if p.name not in {layer.name for layer in pairs}]
    theirs = [p for p in quantised.products if p.value not in set(pairs.values())]
    asked = (
        [layer.value for layer in (*pairs, *mine)],
        [*pairs.values(), *(layer.value for layer in theirs)],
    )
    if not all(asked):
        return (), tuple(layer.name for layer in mine)
    observed = [
        OnnxModel(asking_for(side.model, names), target, db=db)
        for side, names in zip((floats, quantised), asked, strict=True)
    ]
    sums: dict[Any, Sums] = {}
    for n, batch in enumerate(batches):
        a, b = (dict(zip(m.output_names, m(**batch), strict=True)) for m in observed)
        if n == 0:
            shapes = {v: x.shape for v, x in a.items()}
            pairs |= by_order(mine, theirs, (shapes, {v: x.shape for v, x in b.items()}))
            pairs = {p: v for p, v in pairs.items() if a[p.value].shape == b[v].shape}
        for layer, value in pairs.items():
            sums[layer] = sums.get(layer, Sums()) + Sums.of(a[layer.value], b[value])
    place = {name: n for n, name in enumerate(floats.made)}
    rows = [Compared(p.name, p.op, shapes[p.value], s.agreement()) for p, s in sums.items()]
    known = {row.name for row in rows}
    return (
        tuple(sorted(rows, key=lambda row: place[row.name])),
        tuple(p.name for p in floats.products if p.name not in known),
    )


def _results(model: OnnxModel, quantised: OnnxModel, batches: Sequence[Batch]) -> tuple[Compared, ...]:
    sums: dict[str, Sums] = {}
    for batch in batches:
        a, b = model(**batch), quantised(**batch)
        if [x.shape for x in a] != [x.shape for x in b]:
            raise InputError(
                f"{model.name} gives {_shapes(a)}, {quantised.name} gives {_shapes(b)}.",
                fix="Compare a model with its own quantised form.",
            )
        for name, x, y in zip(model.output_names, a, b, strict=True):
            is_classes = x.ndim == 2 and x.shape[1] > 1 and x.dtype.kind == "f"
            sums[name] = sums.get(name, Sums()) + Sums.of(x, y, is_classes)
    named = zip(model.output_names, a, strict=True)
    return tuple(Compared(name, "", x.shape, sums[name].agreement()) for name, x in named)


def _shapes(arrays: Sequence[Array]) -> str:
    return ", ".join(str(list(a.shape)) for a in arrays)


# -- time --------------------------------------------------------------------------------------------------


def _in_turns(calls: Sequence[Callable[[], object]]) -> list[list[float]]:
    """Seconds of each function. They are called in turn, again and again, so that a machine that slows down
    slows all of them."""
    seconds: list[list[float]] = [[] for _ in calls]
    with timing_by(Deadline.after(PATIENCE_S)):
        until = Deadline.after(BUDGET_S)
        for turn in range(TURNS[1]):
            if turn >= TURNS[0] and until.passed:
                break
            for call, samples in zip(calls, seconds, strict=True):
                began = time.perf_counter()
                call()
                samples.append(time.perf_counter() - began)
    return seconds
