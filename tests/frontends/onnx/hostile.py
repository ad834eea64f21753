"""Damaged and false ONNX files, by kind. Each is written into a directory and must be refused in one
sentence.

    KINDS["external data in a parent"](directory) ──▶ the path of the model

`HARMLESS` are files that look as bad and are valid: they run.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from making import floats, model, node
from onnx import TensorProto, helper, numpy_helper

Write = Callable[[Path], Path]
KINDS: dict[str, Write] = {}
HARMLESS: dict[str, Write] = {}
HUGE = 10**12
LARGEST = (1 << 63) - 1
I64, F32 = TensorProto.INT64, TensorProto.FLOAT
X = {"x": (2, 3)}
IMAGE = {"x": (1, 4, 8, 8)}


def written(directory: Path, data: bytes | onnx.ModelProto, name: str = "m.onnx") -> Path:
    path = directory / name
    path.write_bytes(data if isinstance(data, bytes) else data.SerializePartialToString())
    return path


def file(name: str, data: bytes | onnx.ModelProto | Callable[[], bytes | onnx.ModelProto]) -> None:
    assert name not in KINDS, name
    KINDS[name] = lambda d: written(d, data() if callable(data) else data)


def changed(name: str, change: Callable[[onnx.ModelProto], Any], base: Callable[[], onnx.ModelProto]) -> None:
    def make() -> onnx.ModelProto:
        m = base()
        change(m)
        return m

    file(name, make)


# -- models to start from --------------------------------------------------------------------------------


def value(name: str, dims: Sequence[Any] | None, kind: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def layer() -> onnx.ModelProto:
    return model([node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"])], X, weights={"w": floats(3, 4)})


def convolution() -> onnx.ModelProto:
    nodes = [node("Conv", ["x", "w", "b"], pads=[1] * 4)]
    return model(nodes, IMAGE, weights={"w": floats(5, 4, 3, 3), "b": floats(5)})


def gated() -> onnx.ModelProto:
    nodes = [node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=4)]
    return model(nodes, {"x": (3, 1, 2)}, weights={"w": floats(1, 16, 2), "r": floats(1, 16, 4)})


def body(nodes: Sequence[onnx.NodeProto], dims: Sequence[int] = (2, 3)) -> onnx.GraphProto:
    """Of a Loop: (n, go, v) ──▶ (on, v2); the nodes make `v2` of `v`."""
    passed = helper.make_node("Identity", ["go"], ["on"])
    inputs = [value("n", (), I64), value("go", (), TensorProto.BOOL), value("v", dims)]
    return helper.make_graph(
        [passed, *nodes], "body", inputs, [value("on", (), TensorProto.BOOL), value("v2", None)]
    )


def looped(trips: int | None = 3, inner: onnx.GraphProto | None = None) -> onnx.ModelProto:
    inner = inner or body([helper.make_node("Add", ["v", "v"], ["v2"])])
    weights = {} if trips is None else {"trips": np.array(trips)}
    return model([node("Loop", ["trips" if weights else "", "", "x"], body=inner)], X, weights=weights)


BASES = {"layer": layer, "convolution": convolution, "lstm": gated, "loop": looped}


def raw(field: int, data: bytes) -> bytes:
    """A length-delimited field as protobuf writes it."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(n: int) -> bytes:
    out = b""
    while n > 0x7F:
        out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
    return out + bytes([n])


# -- bytes -----------------------------------------------------------------------------------------------

for _name, _base in BASES.items():
    for _part in (0.01, 0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99):
        file(
            f"{_name}, cut at {_part:.0%}",
            lambda b=_base, p=_part: (data := b().SerializeToString())[: max(1, int(len(data) * p))],
        )
for _seed in range(4):
    file(f"random bytes {_seed}", np.random.default_rng(_seed).bytes(2000))
file("nothing", b"")
file("text", b"import torch\nnet = torch.nn.Linear(3, 4)\n")
file("json", json.dumps({"ir_version": 9, "graph": {"node": []}}).encode())
file("a pickle", pickle.dumps({"model": [1, 2, 3]}))
file("a zip", b"PK\x03\x04" + bytes(200))
file("gzip of a model", lambda: gzip.compress(layer().SerializeToString()))
file("zeros", bytes(4096))
file("ones", b"\xff" * 4096)
file("a field of 2 GB that is not there", varint(7 << 3 | 2) + varint((1 << 31) - 1) + b"abc")
file("a field of 2^63 bytes", varint(7 << 3 | 2) + varint(1 << 63) + b"abc")
file("an endless number", b"\x08" + b"\xff" * 64)
file("a wrong kind of field", b"\x38\x01")  # the graph as a number
file("a group that never ends", b"\x3b" * 5000)
file("two models, one behind the other", lambda: layer().SerializeToString() * 2)


def nested_bytes(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph in an attribute …"""
    data = b""
    for _ in range(depth):
        data = raw(1, raw(5, raw(6, data)))  # graph.node.attribute.g
    return raw(7, data) + raw(8, varint(2 << 3) + b"\x11")


file("graphs 10,000 deep", lambda: nested_bytes(10_000))
file("graphs 60 deep", lambda: nested_bytes(60))
for _field, _number in {"input": 1, "output": 2, "name": 3, "op_type": 4, "domain": 7}.items():
    file(
        f"a node's {_field} is not UTF-8",
        raw(7, raw(1, raw(_number, b"\xff\xfe\x80"))) + raw(8, b"\x10\x11"),
    )
file("an initializer's name is not UTF-8", raw(7, raw(5, raw(8, b"\xc3\x28"))) + raw(8, b"\x10\x11"))
file("a dimension's name is not UTF-8", raw(7, raw(11, raw(2, raw(1, raw(2, raw(1, raw(2, b"\xf0\x28"))))))))

# -- structure -------------------------------------------------------------------------------------------


def graph(nodes: Sequence[onnx.NodeProto], **more: Any) -> Callable[[], onnx.ModelProto]:
    return lambda: model(nodes, more.pop("inputs", X), **more)


file(
    "a cycle of two", graph([node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"])])
)
file("a node that reads itself", graph([node("Add", ["x", "y"])]))
file("two nodes make one name", graph([node("Relu", ["x"]), node("Abs", ["x"])]))
file("a node makes an input", graph([node("Relu", ["x"], ["x"]), node("Relu", ["x"])]))
file(
    "a node makes an initializer",
    graph([node("Relu", ["x"], ["w"]), node("Relu", ["w"])], weights={"w": floats(2)}),
)
file("an operand that nothing makes", graph([node("Add", ["x", "ghost"])]))
file("an output that nothing makes", graph([node("Relu", ["x"], ["z"])]))
file("no outputs", graph([node("Relu", ["x"])], outputs=()))
file("no nodes", graph([]))
file("an operator without a name", graph([node("", ["x"])]))
file("an unknown operator", graph([node("Frobnicate", ["x"])]))
file("an unknown domain", graph([node("Relu", ["x"], domain="org.nowhere")], domains=("org.nowhere",)))
file("a domain that is not imported", graph([node("Relu", ["x"], domain="org.nowhere")]))
file(
    "an operator of onnxruntime's quantiser",
    graph([node("MatMulNBits", ["x"], domain="com.microsoft")], domains=("com.microsoft",)),
)
changed("no opset", lambda m: m.ClearField("opset_import"), layer)
for _version in (0, -1, 3, 999, LARGEST):
    changed(f"opset {_version}", lambda m, v=_version: setattr(m.opset_import[0], "version", v), layer)
changed("no graph", lambda m: m.ClearField("graph"), layer)
changed("an input twice", lambda m: m.graph.input.append(m.graph.input[0]), layer)
changed("an output twice", lambda m: m.graph.output.append(value("ghost", None)), layer)
changed("too many operands", lambda m: m.graph.node[1].input.extend(["x"] * 5), layer)
changed("too many results", lambda m: m.graph.node[1].output.extend(["q", "r"]), layer)
changed("no operands", lambda m: m.graph.node[1].ClearField("input"), layer)
changed(
    "an unknown attribute",
    lambda m: m.graph.node[1].attribute.append(helper.make_attribute("speed", 3)),
    layer,
)
changed(
    "an attribute twice",
    lambda m: m.graph.node[0].attribute.append(helper.make_attribute("pads", [9] * 4)),
    convolution,
)
changed(
    "an attribute of another kind",
    lambda m: m.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("pads", "x")),
    convolution,
)
changed("an attribute of no kind", lambda m: setattr(m.graph.node[0].attribute[0], "type", 0), convolution)
changed(
    "a reference outside a function",
    lambda m: setattr(m.graph.node[0].attribute[0], "ref_attr_name", "ghost"),
    gated,
)
changed("sparse initializers", lambda m: m.graph.sparse_initializer.add(), layer)


def function(name: str, nodes: Sequence[onnx.NodeProto], domain: str = "own") -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, opsets)


def calling(*functions: onnx.FunctionProto) -> Callable[[], onnx.ModelProto]:
    call = node(functions[-1].name, ["x"], domain="own")
    return lambda: model([call], X, functions=functions, domains=("own",))


def own(name: str, source: str = "a", result: str = "b") -> onnx.NodeProto:
    return helper.make_node(name, [source], [result], domain="own")


def chain(depth: int, calls: int) -> list[onnx.FunctionProto]:
    """Each function calls the one before it several times."""
    found = [function("f0", [helper.make_node("Relu", ["a"], ["b"])])]
    for n in range(1, depth):
        names = ["a", *(f"t{k}" for k in range(calls - 1)), "b"]
        found.append(function(f"f{n}", [own(f"f{n - 1}", names[k], names[k + 1]) for k in range(calls)]))
    return found


file("a function that calls itself", calling(function("f", [own("f")])))
file("functions that call one another", calling(function("g", [own("f")]), function("f", [own("g")])))
file("functions 1,000 deep", calling(*chain(1000, 1)))
file("functions that double, 20 deep", calling(*chain(20, 2)))
file("a function of an unknown operator", calling(function("f", [node("Nothing", ["a"], ["b"])])))
file("a function that makes nothing", calling(function("f", [])))


def nested_ifs(depth: int) -> onnx.ModelProto:
    """If in If in If …, by hand: protobuf's own parser stops at 100."""
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["o0"])], "g", [], [value("o0", None)])
    for n in range(1, depth):
        branch = (
            helper.make_node("If", ["c"], [f"o{n}"], then_branch=inner, else_branch=inner) if n < 3 else None
        )
        one = branch or helper.make_node("If", ["c"], [f"o{n}"], then_branch=inner)
        inner = helper.make_graph([one], "g", [], [value(f"o{n}", None)])
    return model([node("If", ["c"], then_branch=inner, else_branch=inner)], X, weights={"c": np.array(True)})


file("If 28 deep", lambda: nested_ifs(28))
file("If without branches", graph([node("If", ["c"])], weights={"c": np.array(True)}))
file("If without a condition", lambda: (m := nested_ifs(2), m.graph.node[0].ClearField("input"), m)[2])
file(
    "If of many conditions",
    lambda: (
        m := nested_ifs(2),
        m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(3, bool), "c")),
        m,
    )[2],
)
file("Loop without a body", graph([node("Loop", ["", "", "x"])]))
file("Loop of 1e18 rounds", lambda: looped(10**18))
file("Loop without an end", lambda: looped(None))
file(
    "Loop of 1e18 rounds that grow",
    lambda: looped(10**18, body([helper.make_node("Concat", ["v", "v"], ["v2"], axis=0)])),
)
file(
    "Loop in Loop of 1e9 rounds",
    lambda: looped(
        10**9,
        body(
            [
                helper.make_node(
                    "Loop", ["big", "", "v"], ["v2"], body=body([helper.make_node("Abs", ["v"], ["v2"])])
                )
            ]
        ),
    ),
)
file("Loop whose body makes nothing", lambda: looped(3, body([])))
file("Loop whose body takes less", lambda: (m := looped(), m.graph.node[0].attribute[0].g.input.pop(), m)[2])
file("Scan of a string", graph([node("Scan", ["x"], num_scan_inputs=HUGE, body=body([]))]))

# -- tensors ---------------------------------------------------------------------------------------------


def tensor(name: str, change: Callable[[onnx.TensorProto], Any]) -> None:
    changed(name, lambda m: change(m.graph.initializer[0]), layer)


def dims(*extents: int) -> Callable[[onnx.TensorProto], Any]:
    def change(t: onnx.TensorProto) -> None:
        del t.dims[:]
        t.dims.extend(extents)

    return change


for _extents in (
    (HUGE,),
    (1 << 32, 1 << 32),
    (LARGEST, 2),
    (-1, 4),
    (3, -4),
    (-3, -4),
    (0, HUGE),
    (1 << 31,),
    (3, 5),
    (2, 4),
    (3, 4, 1),
    (),
):
    tensor(f"a weight of extents {_extents}", dims(*_extents))
tensor("a weight of 10,000 axes", dims(*[1] * 9_998, 3, 4))
for _kind in (0, 8, 14, 15, 99, -1):
    tensor(
        f"a weight of element type {_kind}",
        lambda t, k=_kind: t.MergeFromString(b"\x10" + varint(k % (1 << 64))),
    )
tensor("a weight without data", lambda t: t.ClearField("raw_data"))
tensor("a weight with half its data", lambda t: setattr(t, "raw_data", t.raw_data[:20]))
tensor("a weight with too much data", lambda t: setattr(t, "raw_data", t.raw_data * 3))
tensor("a weight as a segment", lambda t: (setattr(t.segment, "begin", 3), t.ClearField("raw_data")))
tensor("a weight as integers", lambda t: (t.ClearField("raw_data"), t.int32_data.extend([1] * 12)))

# -- external data ---------------------------------------------------------------------------------------


def external(name: str, prepare: Callable[[Path], Any] | None = None, **entries: Any) -> None:
    """A weight [3, 4] that is said to lie elsewhere; `prepare` gets the directory of the model."""

    def write(directory: Path) -> Path:
        inside = directory / "inside"
        inside.mkdir()
        (directory / "w.bin").write_bytes(bytes(48))
        (inside / "here.bin").write_bytes(bytes(48))
        if prepare is not None:
            prepare(inside)
        m = layer()
        t = m.graph.initializer[0]
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for key, text in entries.items():
            t.external_data.add(key=key, value=str(text))
        return written(inside, m)

    KINDS[f"external data {name}"] = write


external("in a parent", location="../w.bin")
external("in a parent, by detour", location="here/../../w.bin")
external("at an absolute path", location="/etc/passwd")
external("of a device", location="/dev/zero")
external("of the process", location="/proc/self/mem", offset=0, length=48)
external("behind a link", lambda d: (d / "link.bin").symlink_to(d.parent / "w.bin"), location="link.bin")
external("behind a link of a folder", lambda d: (d / "up").symlink_to(d.parent), location="up/w.bin")
external("behind a link to itself", lambda d: (d / "self.bin").symlink_to("self.bin"), location="self.bin")
external("in a pipe", lambda d: os.mkfifo(d / "pipe.bin"), location="pipe.bin")
external("in a folder", lambda d: (d / "folder").mkdir(), location="folder")
external("in the model itself, too far", location="m.onnx", offset=10**6)
external("that is not there", location="none.bin")
external("without a place", location="")
external("without anything")
external("at a place with a zero", location="here.bin\0.txt")
external("at a very long place", location="a" * 5000)
external("behind its end", location="here.bin", offset=40)
external("at 2^62", location="here.bin", offset=1 << 62)
external("before its start", location="here.bin", offset=-8)
external("at half a byte", location="here.bin", offset=0.5)
external("at a number of many digits", location="here.bin", offset="9" * 400)
external("of other length", location="here.bin", length=47)
external("of no length", location="here.bin", length="")
external("by an address", location="https://example.com/w.bin")

# -- inputs ----------------------------------------------------------------------------------------------


def input_of(name: str, change: Callable[[Any], Any]) -> None:
    changed(name, lambda m: change(m.graph.input[0].type), layer)


def shaped(*extents: int) -> Callable[[Any], Any]:
    def change(t: Any) -> None:
        del t.tensor_type.shape.dim[:]
        for n in extents:
            t.tensor_type.shape.dim.add(dim_value=n)

    return change


for _extents in ((HUGE, 3), (LARGEST, LARGEST), (1 << 31, 3), (2, 4), (6,), (), (1,) * 40):
    input_of(f"an input of extents {str(_extents)[:30]}", shaped(*_extents))
for _kind in (8, 14, 99):
    input_of(f"an input of element type {_kind}", lambda t, k=_kind: setattr(t.tensor_type, "elem_type", k))
input_of("an input that is a sequence", lambda t: t.sequence_type.elem_type.tensor_type.SetInParent())
input_of("an input that is a map", lambda t: setattr(t.map_type, "key_type", 8))
input_of("an input that is sparse", lambda t: setattr(t.sparse_tensor_type, "elem_type", 1))
input_of("an input without a type", lambda t: t.Clear())
input_of(
    "an input whose extent has no end of a name",
    lambda t: shaped()(t) or t.tensor_type.shape.dim.add(dim_param="n" * 10**6),
)

# -- programs that grow or do not end ---------------------------------------------------------------------


def doubling(times: int, kind: str = "Concat") -> onnx.ModelProto:
    """Each doubling of the memory that the model needs takes a hundred bytes of the file."""
    names = ["x", *(f"h{n}" for n in range(times - 1)), "y"]
    more = {"axis": 0} if kind == "Concat" else {}
    return model([node(kind, [a, a], [b], **more) for a, b in itertools.pairwise(names)], X)


file("Concat that doubles 60 times", lambda: doubling(60))
file("Concat of a constant that doubles 60 times", lambda: _constant(doubling(60)))


def summed(kind: str, operands: Sequence[str], weights: dict[str, Any]) -> onnx.ModelProto:
    """Twenty large values and their sum."""
    names = [f"c{k}" for k in range(20)]
    return model([*(node(kind, operands, [c]) for c in names), node("Sum", names)], X, weights=weights)


file("twenty constants of 1 GB", lambda: summed("ConstantOfShape", ["n"], {"n": np.array([1 << 28])}))


def waiting(most: str) -> onnx.ModelProto:
    """A Loop whose condition is computed, and stays true."""
    inner = body([helper.make_node("Abs", ["v"], ["v2"])])
    inner.node[0].CopyFrom(helper.make_node("Less", ["n", "far"], ["on"]))
    m = looped(None, inner)
    m.graph.initializer.append(numpy_helper.from_array(np.array(LARGEST), "far"))
    m.graph.node[0].input[0] = most
    return m


file("Loop whose condition stays true", lambda: waiting(""))
file("Loop of 2^63 rounds whose condition stays true", lambda: waiting("far"))


def _constant(m: onnx.ModelProto) -> onnx.ModelProto:
    m.graph.input.pop()
    m.graph.initializer.append(numpy_helper.from_array(floats(2, 3), "x"))
    return m


# -- valid, however it looks -----------------------------------------------------------------------------


def harmless(name: str, make: Callable[[], onnx.ModelProto]) -> None:
    HARMLESS[name] = lambda d: written(d, make())


def renamed(old: str, new: str) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        m = layer()
        for v in (*m.graph.input, *m.graph.output, *m.graph.initializer):
            v.name = new if v.name == old else v.name
        for n in m.graph.node:
            n.input[:] = [new if x == old else x for x in n.input]
            n.output[:] = [new if x == old else x for x in n.output]
        return m

    return make


for _new in ("t0", "a0", "a1.packed", "arena", "self", "x y", "名", "a" * 5000, "../../etc", "%s{0}", "\n"):
    for _old in ("x", "w", "y"):
        harmless(f"{_old} is called {_new[:20]!r}", renamed(_old, _new))
for _attr, _op in (("alpha", "LeakyRelu"), ("alpha", "Elu"), ("gamma", "Selu"), ("lambd", "Shrink")):
    for _number in (float("nan"), float("inf"), -0.0, 1e-45):
        harmless(
            f"{_op} with {_attr} = {_number}",
            lambda o=_op, a=_attr, n=_number: model([node(o, ["x"], **{a: n})], X),
        )
harmless("nodes in the wrong order", lambda: model([node("Relu", ["h"]), node("Relu", ["x"], ["h"])], X))
harmless("a graph's name of nonsense", lambda: (m := layer(), setattr(m.graph, "name", "../../\0 rm"), m)[2])
harmless(
    "an unread initializer of huge name",
    lambda: (m := layer(), m.graph.initializer.append(numpy_helper.from_array(floats(2), "z" * 10**5)), m)[2],
)
harmless(
    "a NaN weight",
    lambda: (
        m := layer(),
        m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((3, 4), np.nan, np.float32), "w")),
        m,
    )[2],
)
harmless(
    "metadata of a million letters",
    lambda: (m := layer(), m.metadata_props.add(key="k", value="v" * 10**6), m)[2],
)
