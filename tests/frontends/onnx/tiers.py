"""The onnx package's tests of single operators by tier, and how many of each tier pass.

    python tests/frontends/onnx/tiers.py        runs all of them and prints a table

tier 1    tensors of float32, integers and truth values; the inputs' types alone say the outputs' shapes
tier 2    tier 1, and those whose shapes are known once the inputs have values; float64 too

No tier: strings, sequences, 16-bit and smaller floats, integers below 8 bits, complex numbers, control flow,
results as large as the data say, random numbers, training, image files, classical machine learning. Whether
types alone say a shape is asked of the standard's own shape inference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import onnx
from onnx import TensorProto, shape_inference
from onnx_suite import Case, check, listed, node_cases

NEWEST_ASKED = 24  # the opset up to which tier 1 is counted apart

INTEGERS = {
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
}
TIER1_TYPES = {TensorProto.FLOAT, TensorProto.BOOL, *INTEGERS}
TIER2_TYPES = {*TIER1_TYPES, TensorProto.DOUBLE}
CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
BY_DATA = {"NonZero", "Unique", "Compress", "NonMaxSuppression"}  # results as large as the data say
RANDOM = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
    *("RandomUniform", "RandomUniformLike"),
}
OUTSIDE = CONTROL | BY_DATA | RANDOM | {"ImageDecoder", "TfIdfVectorizer"}


class Tier(IntEnum):
    """Smaller is simpler."""

    STATIC = 1
    FROZEN = 2
    OUTSIDE = 3


@dataclass(frozen=True, slots=True)
class Count:
    """How a set of tests went."""

    name: str
    passed: int
    total: int

    @property
    def share(self) -> float:
        return self.passed / self.total if self.total else 1.0

    def __str__(self) -> str:
        return f"{self.name:24} {self.passed:5} of {self.total:5}  {100 * self.share:6.2f} %"


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators that the model uses."""
    return max((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def tier_of(case: Case) -> Tier:
    """By the model and the values that the test gives it."""
    model = case.model
    if not _has_a_tier(model) or any(v is None or isinstance(v, list) for i, _ in case.data for v in i):
        return Tier.OUTSIDE
    types = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    if types <= TIER1_TYPES and _sizes_are_known(model):
        return Tier.STATIC
    return Tier.FROZEN if types <= TIER2_TYPES else Tier.OUTSIDE


def _has_a_tier(model: onnx.ModelProto) -> bool:
    if any(o.domain not in ("", "ai.onnx") for o in model.opset_import):
        return False  # training, classical machine learning
    values = (*model.graph.input, *model.graph.output)
    if any(v.type.WhichOneof("value") != "tensor_type" for v in values):
        return False
    return not any(n.op_type in OUTSIDE for n in model.graph.node)


def _sizes_are_known(model: onnx.ModelProto) -> bool:
    """Whether inference finds the shapes of all outputs, when the model does not state them."""
    blank = onnx.ModelProto()
    blank.CopyFrom(model)
    for output in blank.graph.output:
        output.type.tensor_type.ClearField("shape")
    try:
        found = shape_inference.infer_shapes(blank, data_prop=True).graph.output
    except (shape_inference.InferenceError, ValueError):
        return False
    return all(_is_static(o.type.tensor_type) for o in found)


def _is_static(t: onnx.TypeProto.Tensor) -> bool:
    return t.HasField("shape") and all(d.HasField("dim_value") for d in t.shape.dim)


def counts(cases: Iterable[Case], passes: dict[str, bool]) -> Iterator[Count]:
    """One row for each tier; tier 2 holds tier 1."""
    tiers = [(c, tier_of(c)) for c in cases]
    rows = {
        "all": [c for c, _ in tiers],
        "tier 1": [c for c, t in tiers if t <= Tier.STATIC],
        f"tier 1, opset <= {NEWEST_ASKED}": [
            c for c, t in tiers if t <= Tier.STATIC and opset_of(c.model) <= NEWEST_ASKED
        ],
        "tier 2": [c for c, t in tiers if t <= Tier.FROZEN],
    }
    for name, chosen in rows.items():
        yield Count(name, sum(passes[c.name] for c in chosen), len(chosen))


def main() -> None:
    """Runs every test; what passes or fails against the list is printed first."""
    passes = {}
    for case in node_cases():
        wrong = check(case)
        if wrong:
            print(wrong)
        passes[case.name] = not wrong and case.name not in listed()
    for row in counts(node_cases(), passes):
        print(row)


if __name__ == "__main__":
    main()
