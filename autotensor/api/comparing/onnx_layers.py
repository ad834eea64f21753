"""Pairs of tensors, one in a quantised file and one in the file in floats, that stand for the same layer.

    float.onnx       Conv ─▶ c ─▶ Relu ─▶ r
    quantised.onnx   Conv ─▶ c ─▶ Relu ─▶ r ─▶ Q ─▶ q ─▶ DQ ─▶ v ─▶ …        c ~ c,  r ~ v
                     QLinearConv ─▶ c_quantized                             r ~ c_quantized, dequantised

A layer is the result of a product or a convolution (with the batch norm after it), or a quantised tensor.
Quantisers keep most names, so layers are first paired by name. Quantisers often leave out clipping operators,
because a conversion to bytes clips too: this is the last case above. Products whose names differ are paired
in their order, if their kind and shape agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

import onnx
from onnx import helper

from autotensor.frontends.onnx.onnx_file import Loaded

CONVOLUTION, PRODUCT = "convolution", "product"
KINDS = {
    **dict.fromkeys(("Conv", "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv"), CONVOLUTION),
    "ConvTranspose": "transposed convolution",
    **dict.fromkeys(
        ("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "TransposeMatMul", "MatMulNBits"), PRODUCT
    ),
    **dict.fromkeys(("QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), PRODUCT),
}
# operator → index of the result's scale among its inputs; the next input is the zero point
SCALE_AT = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"), 6),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), 3),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), 3),
    "QLinearConcat": 0,
    "QGemm": 7,
    "QuantizeLinear": 1,
}
Shapes = Mapping[str, tuple[int, ...]]  # shapes of values by name
SUFFIX = "_quantized"  # end of the names that onnxruntime gives to bytes


@dataclass(frozen=True, slots=True)
class Layer:
    """A tensor in floats, and the value that has to be computed for it."""

    name: str
    op: str  # the operator that makes it
    value: str


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of one model that can be compared. The keys are the tensors' names before quantisation."""

    products: tuple[Layer, ...]  # in the model's order
    quantised: Mapping[str, str]  # name ─▶ value in floats
    made: Mapping[str, str]  # name of every result of a node ─▶ the operator
    clipped: Mapping[str, str]  # name ─▶ result of the Relu or Clip that is its only reader
    model: Loaded  # a DequantizeLinear is added for every quantised tensor without one

    def value(self, name: str) -> str | None:
        """The value of the tensor of this name; None if there is no such tensor."""
        return self.quantised.get(name) or (name if name in self.made else None)


def layers_of(model: Loaded) -> Layers:
    """The layers of a model, quantised or not."""
    proto = onnx.ModelProto.FromString(model.proto.SerializeToString())
    nodes = [n for n in proto.graph.node if n.input and n.output]
    read = Counter(name for n in nodes for name in n.input)
    read.update(v.name for v in proto.graph.output)
    norms, clipped = (
        {n.input[0]: n.output[0] for n in nodes if n.op_type in ops and read[n.input[0]] == 1}
        for ops in (("BatchNormalization",), ("Relu", "Clip"))
    )
    reals = {n.input[0]: n.output[0] for n in nodes if n.op_type == "DequantizeLinear"}
    quantised: dict[str, str] = {}
    for n in nodes:
        if (real := _in_floats(n)) is not None:
            q = n.output[0]
            if q not in reals:
                proto.graph.node.append(real)
            quantised.setdefault(_floats_of(n), reals.get(q, real.output[0]))
    products = []
    for n in nodes:
        if n.op_type in KINDS:
            name = norms.get(n.output[0], n.output[0]) if _in_floats(n) is None else _floats_of(n)
            products.append(Layer(name, n.op_type, quantised.get(name, name)))
    made = {name: n.op_type for n in nodes for name in n.output if name}
    return Layers(tuple(products), quantised, made, clipped, replace(model, proto=proto))


def _in_floats(n: onnx.NodeProto) -> onnx.NodeProto | None:
    """The node that turns the bytes made by this node into floats; None if its result is not bytes."""
    at = SCALE_AT.get(n.op_type)
    if at is None or len(n.input) <= at or not n.input[at]:
        return None
    kept = ("axis", "block_size") if n.op_type == "QuantizeLinear" else ()
    attrs = {a.name: helper.get_attribute_value(a) for a in n.attribute if a.name in kept}
    q = n.output[0]
    return helper.make_node(
        "DequantizeLinear",
        [q, *n.input[at : at + 2]],
        [f"{q}/in floats"],
        domain=n.domain if kept else "",
        **attrs,
    )


def _floats_of(n: onnx.NodeProto) -> str:
    """The name that the bytes made by this node had as floats."""
    return str(n.input[0] if n.op_type == "QuantizeLinear" else n.output[0].removesuffix(SUFFIX))


def asking_for(model: Loaded, names: Iterable[str]) -> Loaded:
    """The model with these tensors as its outputs."""
    proto = onnx.ModelProto.FromString(model.proto.SerializeToString())
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names))
    return replace(model, proto=proto)


def by_name(floats: Layers, quantised: Layers) -> dict[Layer, str]:
    """Pairs layers of the first file with values of the second by name, in the first file's order."""
    ops = {layer.name: layer.op for layer in floats.products}
    ops |= {n: floats.made[n] for n in quantised.quantised if n in floats.made}
    order = {name: place for place, name in enumerate(floats.made)}
    found = {}
    for name in sorted(ops, key=order.__getitem__):
        if (value := quantised.value(name)) is not None:
            after = floats.clipped.get(name)
            leaves_out = name in quantised.quantised and after and quantised.value(after) is None
            found[Layer(name, ops[name], after if after and leaves_out else name)] = value
    return found


def by_order(
    floats: Sequence[Layer], quantised: Sequence[Layer], shapes: tuple[Shapes, Shapes]
) -> dict[Layer, str]:
    """Pairs products whose names do not match, along the longest runs of equal kinds and shapes.

    shapes: the shapes of each file's values.
    """
    a, b = (
        [(KINDS[layer.op], known[layer.value]) for layer in layers]
        for layers, known in zip((floats, quantised), shapes, strict=True)
    )
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return {floats[i + n]: quantised[j + n].value for i, j, size in blocks for n in range(size)}
