"""The importer: it walks an ONNX graph, node after node, and calls converters that make autotensor's nodes.

    initializers ─▶ constants ┐
    inputs ─▶ Input nodes ────┴─ node by node ─▶ values by name ─▶ outputs

Values are immutable nodes, so a converter may keep any of them. The numbers of a value that depends only on
constants are always available. The numbers of other values come from the `Runtime`. This is a running model
(`staged_model.py`), or `Ahead`, which has no such numbers and makes a graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from autotensor.base.errors import AutotensorError
from autotensor.base.registry import nearest
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.checks import check_call, check_types
from autotensor.frontends.onnx.element_types import Array
from autotensor.frontends.onnx.errors import Malformed, NeedsValue
from autotensor.frontends.onnx.function_definitions import definition
from autotensor.frontends.onnx.messages import (
    AttributeProto,
    AttributeType,
    FunctionProto,
    GraphProto,
    NodeProto,
)
from autotensor.frontends.onnx.node_call import Call, Value
from autotensor.frontends.onnx.node_order import dequantised, in_order, names_read
from autotensor.frontends.onnx.onnx_file import Loaded, plain_domain
from autotensor.frontends.onnx.operator_rules import rules_of
from autotensor.frontends.onnx.registry import converter_of, operators
from autotensor.frontends.onnx.tensors import MAX_BYTES
from autotensor.graph.build import constant
from autotensor.graph.evaluate import evaluate_node
from autotensor.graph.ir import Apply, Constant, GraphNode, Input, topological

# torch's first exporters wrote this opset; in older ones, broadcasting, shapes and casts differ
OLDEST_OPSET = 6
DEEPEST = 24  # most levels of functions and subgraphs inside one another
MOST_NODES = 200_000  # after unrolling; far above any real model
MOST_MADE = 1 << 29  # most bytes of a value that depends on no input and is not in the file (VGG: 411 MB)
MISSING: Any = object()  # a result that a function does not make
_QUANTISED = re.compile(r"Quant|^Q[A-Z]|NBits|Integer|FpQ4|Bnb4|BFP|Float8|Fp[48]")  # names of com.microsoft
# exceptions that converters raise for malformed nodes: a missing attribute, an axis that is a string, …
MALFORMED = (
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    OverflowError,
    ZeroDivisionError,
    AttributeError,
    AssertionError,
)


Live = Callable[[], Iterable[GraphNode]]  # values that must stay available
OnHost = Callable[..., tuple[Array, ...]]  # a Python function of values
Build = Callable[["Runtime", tuple[Value, ...]], tuple[Value, ...]]


class Runtime(Protocol):
    """The source of values that depend on the model's inputs."""

    def ask(self, node: GraphNode, live: Live, where: str) -> Array: ...

    def host(
        self,
        fn: OnHost,
        operands: Sequence[GraphNode],
        live: Live,
        where: str,
    ) -> tuple[GraphNode, ...]: ...

    def nested(self, build: Build) -> Callable[..., Any]: ...


class Ahead:
    """No runtime: the graph is made before anything runs."""

    def ask(self, node: GraphNode, live: Live, where: str) -> Array:
        names = sorted({n.name for n in topological((node,)) if isinstance(n, Input)})
        raise NeedsValue(
            f"{where} needs numbers that depend on the values of {', '.join(map(repr, names))}.",
            fix="Give those with values={...}, or call the model through autotensor.OnnxModel.",
        )

    def host(
        self,
        fn: OnHost,
        operands: Sequence[GraphNode],
        live: Live,
        where: str,
    ) -> tuple[GraphNode, ...]:
        raise NeedsValue(
            f"{where} has a result whose shape depends on values.",
            fix="Call the model through autotensor.OnnxModel, which compiles it in parts.",
        )

    def nested(self, build: Build) -> Callable[..., Any]:
        raise NotImplementedError("reached only through host, which refuses first")


class Frame:
    """A graph or function that the importer is walking: its values by name, and the last node that reads
    each."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        outputs: Iterable[str],
        outer: Frame | None,
        caller: Frame | None = None,
    ) -> None:
        self.nodes = in_order(nodes)
        self.values: dict[str, Value] = {}
        self.outer = outer  # the frame around this one, whose names can be read here
        # the frame that calls this function: its values must stay alive, its names mean nothing here
        self.caller = caller
        self.position = 0
        self.last: dict[str, int] = dict.fromkeys(outputs, len(nodes))
        for n in range(len(nodes) - 1, -1, -1):
            for name in names_read(self.nodes[n]):
                self.last.setdefault(name, n)

    def find(self, name: str) -> Value:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.values:
                return frame.values[name]
            frame = frame.outer
        raise KeyError(name)

    def live(self) -> Iterable[GraphNode]:
        """Values that this node or a later one reads."""
        frame: Frame | None = self
        while frame is not None:
            for name, value in frame.values.items():
                if frame.last.get(name, -1) >= frame.position:
                    yield from tensors_in(value)
            frame = frame.outer or frame.caller


def tensors_in(value: Value) -> Iterable[GraphNode]:
    if isinstance(value, GraphNode):
        yield value
    elif isinstance(value, tuple):
        for v in value:
            yield from tensors_in(v)


def _is_unchanged(op: str, opset: int) -> bool:
    """Whether an operator of an old opset is still the same in the oldest opset that converters support."""
    old, new = (rules_of(op, v, "") for v in (opset, OLDEST_OPSET))
    return old is not None and new is not None and old.since == new.since


class Importer:
    """Imports one model, for inputs of known types."""

    def __init__(self, model: Loaded, runtime: Runtime) -> None:
        self.model = model
        self.runtime = runtime
        self.frame: Frame | None = None
        self.depth = 0
        self.count = 0
        self._known: dict[GraphNode, Array] = {}
        self._open: dict[GraphNode, bool] = {}
        self.functions = {(plain_domain(f.domain), f.name, f.overload): f for f in model.proto.functions}

    @property
    def runs(self) -> bool:
        """Whether the model is running, so that the host can compute parts of it."""
        return not isinstance(self.runtime, Ahead)

    # -- graphs ------------------------------------------------------------------------------------------
    def graph(
        self,
        graph: GraphProto,
        inputs: Mapping[str, Value],
        opsets: Mapping[str, int] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> tuple[Value, ...]:
        """The outputs of a graph, or of a subgraph of the node that is being imported."""
        frame = Frame(graph.node, (o.name for o in graph.output), self.frame)
        # these 4-bit tensors are read as bytes, because DequantizeLinear gives the same for both
        in_bytes = dequantised(graph)
        for tensor in graph.initializer:
            array = self.model.array(tensor, tensor.name in in_bytes)
            frame.values[tensor.name] = constant(array, tensor.name)
        if graph.sparse_initializer:
            raise Unsupported(f"graph {graph.name!r} has sparse initializers, which are not supported.")
        frame.values.update(inputs)
        return self._walk(frame, [o.name for o in graph.output], opsets or self.model.opsets, attrs)

    def function(
        self, function: FunctionProto, inputs: Sequence[Value], attrs: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """The results of a function called with these operands and attributes."""
        frame = Frame(function.node, function.output, None, self.frame)
        frame.values.update(dict.fromkeys(function.input))
        frame.values.update(zip(function.input, inputs, strict=False))
        opsets = self.model.opsets | {plain_domain(i.domain): int(i.version) for i in function.opset_import}
        defaults = {a.name: self._attribute(a) for a in function.attribute_proto}
        given = {**defaults, **attrs}
        return self._walk(frame, list(function.output), opsets, given, is_function=True)

    def _walk(
        self,
        frame: Frame,
        outputs: Sequence[str],
        opsets: Mapping[str, int],
        attrs: Mapping[str, Any] | None,
        is_function: bool = False,
    ) -> tuple[Value, ...]:
        """The outputs with these names. A function may leave out outputs that its caller does not need."""
        if self.depth >= DEEPEST:
            raise Malformed(f"graphs and functions are nested more than {DEEPEST} levels deep.")
        before, self.frame = self.frame, frame
        self.depth += 1
        try:
            for n, node in enumerate(frame.nodes):
                frame.position = n
                self._node(frame, node, opsets, attrs)
            frame.position = len(frame.nodes)
            found = []
            for name in outputs:
                try:
                    found.append(frame.find(name))
                except KeyError:
                    if not is_function:
                        raise Malformed(f"output {name!r} is not computed by any node.") from None
                    found.append(MISSING)
            return tuple(found)
        finally:
            self.depth -= 1
            self.frame = before

    # -- nodes -------------------------------------------------------------------------------------------
    def _node(
        self,
        frame: Frame,
        node: NodeProto,
        opsets: Mapping[str, int],
        outer_attrs: Mapping[str, Any] | None,
    ) -> None:
        """Imports a node. outer_attrs: the attributes of the function that holds the node; None outside
        functions."""
        self.count += 1
        if self.count > MOST_NODES:
            raise Malformed(f"the model has more than {MOST_NODES} nodes once its loops are unrolled.")
        domain = plain_domain(node.domain)
        opset = opsets.get(domain)
        if opset is None:
            raise Malformed(
                f"node {node.name!r} ({node.op_type}) is of domain {domain!r}, which the model does not "
                "import."
            )
        inputs = []
        for name in node.input:
            try:
                inputs.append(frame.find(name) if name else None)
            except KeyError:
                raise Malformed(
                    f"node {node.name!r} ({node.op_type}) reads {name!r}, which no node before it computes."
                ) from None
        attrs: dict[str, Any] = {}
        call = Call(self, node, opset, inputs, attrs)
        try:
            for a in node.attribute:
                if a.name in attrs:
                    raise call.malformed(f"it has several attributes {a.name!r}.")
                if a.ref_attr_name:
                    if outer_attrs is None:
                        raise call.malformed(f"its attribute {a.name!r} is a function's, and it is in none.")
                    if a.ref_attr_name in outer_attrs:
                        attrs[a.name] = outer_attrs[a.ref_attr_name]
                else:
                    attrs[a.name] = self._attribute(a)
            call.opsets, call.outer_attrs = opsets, outer_attrs  # for subgraphs
            results = self._convert(call, domain, opset)
        except MALFORMED as error:
            raise Malformed(f"{call.where} cannot be read: {type(error).__name__}: {error}.") from error
        except (Unsupported, Malformed, NeedsValue):
            raise
        except RecursionError as error:
            raise Malformed(f"{call.where} is nested too deep.") from error
        except AutotensorError as error:
            if call.where in error.what:
                raise
            raise Malformed(f"{call.where}: {error.what}") from error
        values = results if isinstance(results, list) else [results]
        for name, value in zip(node.output, values, strict=False):
            if name and value is MISSING:
                raise Unsupported(f"{call.where}: its result {name!r} is not supported.")
            if name in frame.values:
                raise call.malformed(f"its result {name!r} is made already.")
            if name:
                frame.values[name] = self._sized(call, value)
        if missing := [name for name in node.output[len(values) :] if name]:
            raise Unsupported(f"{call.where}: its result {missing[0]!r} is not supported.")

    def _convert(self, call: Call, domain: str, opset: int) -> Any:
        """One value, or a list of them."""
        node = call.node
        own = self.functions.get((domain, node.op_type, node.overload))
        if own is not None:
            return list(self.function(own, call.inputs, call.attrs))
        if not domain and opset < OLDEST_OPSET and not _is_unchanged(node.op_type, opset):
            raise Unsupported(
                f"{call.where}: the operator had another meaning before opset {OLDEST_OPSET}.",
                fix="onnx.version_converter changes a model's opset.",
            )
        check_call(call, domain)
        converter = converter_of(domain, node.op_type, opset)
        if converter is not None:
            check_types(call, domain)
            return converter(call)
        found = definition(call, domain, opset)
        if found is not None:
            check_types(call, domain)
            return list(self.function(found[0], call.inputs, found[1]))
        if domain and _QUANTISED.search(node.op_type):
            raise Unsupported(
                f"{call.where} computes with quantised numbers, as onnxruntime's tools write them, and is "
                "not supported.",
                fix="Use the model before quantisation, or quantise it with ONNX's own operators (QDQ).",
            )
        if domain == "com.microsoft.nchwc":
            raise Unsupported(
                f"{call.where} is not supported: onnxruntime optimised the model for one processor.",
                fix="Use the original model, or optimise it at most at ORT_ENABLE_EXTENDED.",
            )
        if domain.startswith("ai.onnx.ml"):
            raise Unsupported(
                f"{call.where} is not supported: operators such as trees and linear models are not compiled.",
                fix="Run that part with onnxruntime, and pass its results in.",
            )
        ours = operators(domain)
        near = nearest(node.op_type, ours)
        near += f"There are converters for {len(ours)} operators; docs/onnx.md lists them."
        foreign = (
            "It is none of ONNX's own; onnxruntime's optimiser writes such: take the model from before it. "
        )
        raise Unsupported(
            f"{call.where} is not supported.", fix=(foreign if domain else "") + (near if ours else "")
        )

    def _sized(self, call: Call, value: Value) -> Value:
        for t in tensors_in(value):
            if math.prod(t.shape) * t.dtype.bytes > MAX_BYTES:
                raise Malformed(
                    f"{call.where}: its result {t.dtype}{list(t.shape)} is larger than {MAX_BYTES} bytes."
                )
            if math.prod(t.shape) * t.dtype.bytes > MOST_MADE and not self.is_open(t):
                raise Malformed(
                    f"{call.where}: its result {t.dtype}{list(t.shape)} depends on no input and is larger "
                    f"than {MOST_MADE} bytes."
                )
        if isinstance(value, GraphNode) and isinstance(value, Apply) and 0 in value.shape:
            return constant(np.zeros(value.shape, value.dtype.numpy))  # nothing to compute: no kernel
        return value

    def _attribute(self, a: AttributeProto) -> Any:
        kinds = AttributeType
        match a.type:
            case kinds.FLOAT:
                return a.f
            case kinds.INT:
                return a.i
            case kinds.GRAPH:
                return a.g
            case kinds.STRING:
                return a.s.decode("utf-8", errors="replace")
            case kinds.TENSOR:
                return self.model.array(a.t)
            case kinds.INTS:
                return tuple(map(int, a.ints))
            case kinds.FLOATS:
                return tuple(map(float, a.floats))
            case kinds.GRAPHS:
                return tuple(a.graphs)
            case kinds.STRINGS:
                return tuple(s.decode("utf-8", errors="replace") for s in a.strings)
            case kinds.TYPE_PROTO:
                return a.tp
            case _:
                raise Unsupported(f"attribute {a.name!r} is of a kind that is not supported.")

    # -- numbers -----------------------------------------------------------------------------------------
    def is_open(self, node: GraphNode) -> bool:
        """Whether a node depends on inputs of the model."""
        stack = [node]
        while stack:
            top = stack[-1]
            if top in self._open:
                stack.pop()
            elif not isinstance(top, Apply):
                self._open[stack.pop()] = isinstance(top, Input)
            elif missing := [x for x in top.inputs if x not in self._open]:
                stack += missing
            else:
                self._open[stack.pop()] = any(self._open[x] for x in top.inputs)
        return self._open[node]

    def demand(self, node: GraphNode, where: str) -> Array:
        """The value of a node, now."""
        if isinstance(node, Constant):
            return node.array
        if self.is_open(node):
            return self.runtime.ask(node, self._live, where)
        if node not in self._known:
            for n in topological((node,)):
                if isinstance(n, Apply) and n not in self._known:
                    self._known[n] = evaluate_node(n, [self._value(x) for x in n.inputs])
        return self._known[node]

    def _value(self, node: GraphNode) -> Array:
        return node.array if isinstance(node, Constant) else self._known[node]

    def host(self, fn: OnHost, operands: Sequence[GraphNode], where: str) -> tuple[GraphNode, ...]:
        """The results of a Python function of values. It runs at once if the values are known."""
        if not any(self.is_open(x) for x in operands):
            return tuple(constant(a) for a in fn(*(self.demand(x, where) for x in operands)))
        known = [x if self.is_open(x) else constant(self.demand(x, where)) for x in operands]
        return self.runtime.host(fn, known, self._live, where)

    def _live(self) -> Iterable[GraphNode]:
        return self.frame.live() if self.frame is not None else ()
