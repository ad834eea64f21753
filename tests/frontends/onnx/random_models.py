"""Random ONNX models, drawn by Hypothesis: chains and joins of some forty operators over small tensors.

Weights and inputs come from a seed. Operators that jump (Floor, comparisons) read inputs only, whose values
are the same everywhere; of computed ones the last bit may decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
OPSET = 18
MOST = 4096  # elements of a value


@dataclass
class Making:
    """A model being made."""

    draw: Any
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)  # of float32 values
    inputs: list[str] = field(default_factory=list)

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int) -> str:
        return self.weight(self.rng.standard_normal(shape).astype(np.float32) / 2)

    def ints(self, values: Any) -> str:
        return self.weight(np.asarray(values, np.int64))

    def add(self, op: str, inputs: list[str], shape: Shape, outputs: int = 1, **attrs: Any) -> str:
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        if math.prod(shape) <= MOST:
            self.shapes[names[0]] = shape
        return names[0]


Rule = Callable[[Making, str, Shape], Any]


def unary(m: Making, x: str, s: Shape) -> None:
    op = m.pick(
        "Relu",
        "Sigmoid",
        "Tanh",
        "Neg",
        "Abs",
        "LeakyRelu",
        "Elu",
        "Softplus",
        "Erf",
        "HardSigmoid",
        "Identity",
        "Softsign",
    )
    m.add(op, [x], s)


def jumping(m: Making, x: str, s: Shape) -> None:
    x = m.pick(*m.inputs)
    s = m.shapes[x]
    op = m.pick("Floor", "Ceil", "Round", "Sign", "Less", "Where")
    if op == "Less":
        y = m.add(op, [x, m.floats(*s[-1:])], s)
        del m.shapes[y]  # bools
        m.add("Cast", [y], s, to=TensorProto.FLOAT)
    elif op == "Where":
        y = m.add("Greater", [x, m.weight(np.float32(0.1))], s)
        del m.shapes[y]
        m.add("Where", [y, x, m.floats(*s[-1:])], s)
    else:
        m.add(op, [x], s)


def binary(m: Making, x: str, s: Shape) -> None:
    op = m.pick("Add", "Sub", "Mul", "Max", "Min")
    others = [n for n, t in m.shapes.items() if _common(s, t)]
    if others and m.pick(True, False):
        other = m.pick(*others)
        m.add(op, m.pick([x, other], [other, x]), _common(s, m.shapes[other]))
        return
    shape = tuple(m.pick(1, n) for n in s[m.number(0, len(s)) :])
    m.add(op, m.pick([x, m.floats(*shape)], [m.floats(*shape), x]), s)


def _common(a: Shape, b: Shape) -> Shape:
    """The shape that both broadcast to; () when they do not, or it is large."""
    try:
        found = tuple(int(n) for n in np.broadcast_shapes(a, b))
    except ValueError:
        return ()
    return found if math.prod(found) <= MOST else ()


def product(m: Making, x: str, s: Shape) -> None:
    if not s:
        return
    n = m.number(1, 9)
    if len(s) == 2 and m.pick(True, False):
        turned = m.pick(0, 1)
        w = m.floats(n, s[1]) if turned else m.floats(s[1], n)
        m.add(
            "Gemm",
            [x, w, m.floats(n)],
            (s[0], n),
            transB=turned,
            alpha=m.pick(1.0, 0.5),
            beta=m.pick(1.0, 2.0),
        )
    else:
        m.add("MatMul", [x, m.floats(s[-1], n)], (*s[:-1], n))


def convolution(m: Making, x: str, s: Shape) -> None:
    rank = len(s) - 2
    if rank not in (1, 2):
        return
    kernel = [m.number(1, min(3, n)) for n in s[2:]]
    strides = [m.number(1, 2) for _ in kernel]
    pads = [m.number(0, k - 1) for k in kernel * 2]
    out = tuple(
        (n + pads[a] + pads[rank + a] - k) // t + 1
        for a, (n, k, t) in enumerate(zip(s[2:], kernel, strides, strict=True))
    )
    attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    kind = m.pick("Conv", "depthwise", "MaxPool", "AveragePool")
    if kind == "Conv":
        channels = m.number(1, 5)
        m.add(
            "Conv",
            [x, m.floats(channels, s[1], *kernel), m.floats(channels)],
            (s[0], channels, *out),
            **attrs,
        )
    elif kind == "depthwise":
        m.add("Conv", [x, m.floats(s[1], 1, *kernel)], (s[0], s[1], *out), group=s[1], **attrs)
    elif kind == "MaxPool":
        m.add("MaxPool", [x], (*s[:2], *out), **attrs)
    else:
        m.add("AveragePool", [x], (*s[:2], *out), count_include_pad=m.pick(0, 1), **attrs)


def norm(m: Making, x: str, s: Shape) -> None:
    op = m.pick("BatchNormalization", "LayerNormalization", "InstanceNormalization")
    if op == "LayerNormalization":
        if s:
            m.add(op, [x, m.floats(s[-1]), m.floats(s[-1])], s, epsilon=1e-2)
    elif op == "InstanceNormalization":
        if len(s) > 2:
            m.add(op, [x, m.floats(s[1]), m.floats(s[1])], s, epsilon=1e-2)
    elif len(s) > 1:
        variance = m.weight((m.rng.random(s[1]) + 0.5).astype(np.float32))
        m.add(op, [x, m.floats(s[1]), m.floats(s[1]), m.floats(s[1]), variance], s)


def reduction(m: Making, x: str, s: Shape) -> None:
    if not s:
        return
    op = m.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
    axes = sorted(m.draw(st.sets(st.integers(0, len(s) - 1), min_size=1)))
    keep = m.pick(0, 1)
    shape = tuple(1 if a in axes else n for a, n in enumerate(s) if keep or a not in axes)
    signed = [a - len(s) if m.pick(True, False) else a for a in axes]
    m.add(op, [x, m.ints(signed)], shape, keepdims=keep)


def along(m: Making, x: str, s: Shape) -> None:
    if not s:
        return
    axis = m.number(-len(s), len(s) - 1)
    op = m.pick("Softmax", "LogSoftmax", "CumSum")
    if op == "CumSum":
        m.add(op, [x, m.ints(axis)], s, exclusive=m.pick(0, 1), reverse=m.pick(0, 1))
    else:
        m.add(op, [x], s, axis=axis)


def movement(m: Making, x: str, s: Shape) -> None:
    op = m.pick("Transpose", "Reshape", "Flatten", "Unsqueeze", "Expand", "Tile", "dynamic")
    if op == "Transpose" and s:
        order = m.draw(st.permutations(range(len(s))))
        m.add(op, [x], tuple(s[a] for a in order), perm=order)
    elif op == "Reshape":
        shape = _refactored(m, math.prod(s))
        m.add(op, [x, m.ints([-1, *shape[1:]] if m.pick(True, False) else shape)], shape)
    elif op == "Flatten":
        axis = m.number(0, len(s))
        m.add(op, [x], (math.prod(s[:axis]), math.prod(s[axis:])), axis=axis)
    elif op == "Unsqueeze" and len(s) < 5:
        axis = m.number(0, len(s))
        m.add(op, [x, m.ints([axis])], (*s[:axis], 1, *s[axis:]))
    elif op == "Expand":
        wide = tuple(m.number(1, 3) if n == 1 else n for n in s)
        m.add(op, [x, m.ints(wide)], wide)
    elif op == "Tile" and s:
        times = [m.number(1, 2) for _ in s]
        m.add(op, [x, m.ints(times)], tuple(n * t for n, t in zip(s, times, strict=True)))
    elif op == "dynamic" and len(s) >= 2:  # as exporters flatten: by the shape, computed
        shape = m.add("Shape", [x], s)
        first = m.add("Gather", [shape, m.ints([0])], s)
        joined = m.add("Concat", [first, m.ints([-1])], s, axis=0)
        for name in (shape, first, joined):
            m.shapes.pop(name, None)
        m.add("Reshape", [x, joined], (s[0], math.prod(s[1:])))


def _refactored(m: Making, size: int) -> Shape:
    out = []
    for _ in range(m.number(0, 3)):
        factor = m.pick(*(f for f in range(1, size + 1) if size % f == 0))
        out.append(factor)
        size //= factor
    return (*out, size)


def cutting(m: Making, x: str, s: Shape) -> None:
    if not s:
        return
    a = m.number(0, len(s) - 1)
    n = s[a]
    op = m.pick("Slice", "Split", "Pad", "Gather", "Concat")
    if op == "Slice":
        start, step = m.number(0, n - 1), m.pick(1, 2, -1)
        end = -(1 << 62) if step < 0 else 1 << 62
        count = len(range(n)[start::step])
        m.add(
            op, [x, m.ints([start]), m.ints([end]), m.ints([a]), m.ints([step])], (*s[:a], count, *s[a + 1 :])
        )
    elif op == "Split" and n > 1:
        first = m.number(1, n - 1)
        m.add(op, [x, m.ints([first, n - first])], (*s[:a], first, *s[a + 1 :]), outputs=2, axis=a)
    elif op == "Pad":
        mode = m.pick("constant", "edge", "reflect")
        around = [(m.number(0, min(2, k - 1)), m.number(0, min(2, k - 1))) for k in s]
        shape = tuple(k + b + e for k, (b, e) in zip(s, around, strict=True))
        m.add(op, [x, m.ints([b for b, _ in around] + [e for _, e in around])], shape, mode=mode)
    elif op == "Gather":
        places = m.draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=4))
        m.add(op, [x, m.ints(places)], (*s[:a], len(places), *s[a + 1 :]), axis=a)
    elif op == "Concat":
        fitting = [
            k for k, t in m.shapes.items() if len(t) == len(s) and t[:a] == s[:a] and t[a + 1 :] == s[a + 1 :]
        ]
        other = m.pick(*fitting)
        m.add(op, [x, other], (*s[:a], n + m.shapes[other][a], *s[a + 1 :]), axis=a)


def resizing(m: Making, x: str, s: Shape) -> None:
    if len(s) != 4:
        return
    sizes = [*s[:2], m.number(1, 2 * s[2]), m.number(1, 2 * s[3])]
    mode = m.pick("nearest", "linear")
    way = "asymmetric" if mode == "nearest" else m.pick("half_pixel", "align_corners")
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    m.add(
        "Resize",
        [x, "", "", m.ints(sizes)],
        tuple(sizes),
        mode=mode,
        coordinate_transformation_mode=way,
        **more,
    )


RULES: tuple[Rule, ...] = (
    *(unary, jumping, binary, binary, product, convolution, convolution, norm, reduction, along),
    *(movement, movement, cutting, cutting, resizing),
)


@dataclass(frozen=True)
class Drawn:
    """A model and inputs for it."""

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return onnx.printer.to_text(self.model)


@st.composite
def models(draw: Any, most: int = 7) -> Drawn:
    m = Making(draw, np.random.default_rng(draw(st.integers(0, 2**16))))
    for n in range(m.number(1, 2)):
        name = f"x{n}"
        m.shapes[name] = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
        m.inputs.append(name)
    given = {n: m.rng.standard_normal(m.shapes[n]).astype(np.float32) for n in m.inputs}
    for _ in range(m.number(1, most)):
        x = draw(st.sampled_from(list(m.shapes)))
        draw(st.sampled_from(RULES))(m, x, m.shapes[x])
    read = {i for n in m.nodes for i in n.input}
    outputs = [n for n in m.shapes if n not in read and n not in m.inputs] or list(m.shapes)[-1:]
    if set(outputs) <= set(m.inputs):
        m.nodes.append(helper.make_node("Relu", outputs[:1], ["last"]))
        outputs = ["last"]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        m.nodes, "drawn",
        [info(n, TensorProto.FLOAT, given[n].shape) for n in m.inputs],
        [info(n, TensorProto.FLOAT, None) for n in outputs],
        m.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return Drawn(model, given)
