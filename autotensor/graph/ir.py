"""Graphs: inputs, constants, and operators applied to them.

    Input ──┐
    Constant┴─▶ Apply("conv2d") ──▶ Apply("relu") ──▶ output

Nodes are interned (`ir/node.py`): equal applications are one object, so a graph never computes the same thing
twice. A node that no output needs is not in the graph. Constants are the same when their bytes are the same.
`print(graph)` shows one line per node. Nodes are written with `graph/build.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from autotensor.base.dtype import DType, dtype_of
from autotensor.base.errors import GraphError
from autotensor.base.names import free_name
from autotensor.graph.constant_data import Alike, Data
from autotensor.graph.function import TeFunction
from autotensor.graph.infer_types import Attrs, defaults_of, flops_of, frozen, result_types, type_text
from autotensor.ir.node import Node
from autotensor.ir.notebook import ShownInNotebooks
from autotensor.operators import OPERATORS, Kind, TensorType

if TYPE_CHECKING:  # `graph.explain()` loads its file only when it is called
    from autotensor.graph.explain import Explanation

Array = np.ndarray[Any, np.dtype[Any]]


class GraphNode(Node):
    """A value: one tensor, of a known `type`."""

    _derived: ClassVar[tuple[str, ...]] = ("type",)
    if False:  # for type checkers: filled by __derive__

        @property
        def type(self) -> TensorType: ...

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __str__(self) -> str:
        return repr(self)

    def _typed(self, type_: TensorType) -> None:
        object.__setattr__(self, "type", type_)

    # -- arithmetic: each Python operator makes a node of the graph operator with the same meaning -------
    def __add__(self, other: Any) -> GraphNode:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> GraphNode:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> GraphNode:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> GraphNode:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> GraphNode:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> GraphNode:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> GraphNode:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> GraphNode:
        return _binary("divide", other, self)

    def __getitem__(self, index: Any) -> GraphNode:
        raise GraphError(
            "a graph node cannot be indexed or iterated over.",
            fix="Use at.ops.slice, or at.call with a te function.",
        )

    # NumPy on the left (`array + node`) must come here and not try to loop over the node.
    __array_ufunc__ = None


class Input(GraphNode):
    """An argument of the graph. `serial` distinguishes two arguments that have the same name."""

    name: str
    of: TensorType
    serial: int = 0

    def __derive__(self) -> None:
        self._typed(self.of)

    def __repr__(self) -> str:
        return f"Input({self.name}: {type_text(self.of)})"


class Parameter(Input):
    """An argument that training changes; `array` holds its first values."""

    start: Data = Data.of(np.zeros((), np.float32))

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        return args[:3]  # the serial number distinguishes parameters; the table would keep their values alive

    def __repr__(self) -> str:
        return f"Parameter({self.name}: {type_text(self.of)})"


class Constant(GraphNode):
    """An array that is known when the graph is made. `name` is for people: the first name of these bytes."""

    data: Data
    name: str = ""

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        return Alike(args[0])

    def __derive__(self) -> None:
        self._typed(TensorType.of(self.data.array.shape, dtype_of(self.data.array.dtype)))

    @property
    def array(self) -> Array:
        return self.data.array

    def __repr__(self) -> str:
        return f"Constant({_constant_text(self)})"


class Apply(GraphNode):
    """Result `output` of an operator (by name) or of a te function.

    `attrs` holds only the attributes that differ from their defaults.
    """

    op: str | TeFunction
    inputs: tuple[GraphNode, ...]
    attrs: Attrs = ()
    output: int = 0

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        op, inputs, attrs, output = args
        # The key holds the inputs' addresses: the inputs themselves would keep whole models in the table. A
        # node keeps its inputs alive, so no other object can get these addresses while the node lives.
        at = tuple(map(id, inputs))
        return op, at, repr(attrs), output  # repr: 1, 1.0 and True are different attributes

    def __derive__(self) -> None:
        types = result_types(self.op, tuple(x.type for x in self.inputs), self.attrs)
        if self.output >= len(types):
            raise GraphError(f"{self.op_name} has {len(types)} results; number {self.output} does not exist.")
        self._typed(types[self.output])

    @property
    def op_name(self) -> str:
        return self.op if isinstance(self.op, str) else self.op.name

    @property
    def kind(self) -> Kind:
        return OPERATORS.get(self.op).kind if isinstance(self.op, str) else self.op.kind

    @property
    def is_elementwise(self) -> bool:
        """Whether each element is computed only from the inputs' elements in the same place."""
        return self.kind is Kind.ELEMENTWISE and not self.has_attr("axis")

    @property
    def results(self) -> int:
        """How many results the operator has."""
        return len(result_types(self.op, tuple(x.type for x in self.inputs), self.attrs))

    def attr(self, name: str) -> Any:
        """The attribute as given, or its default. Raises GraphError if the operator has no such attribute."""
        for key, value in self.attrs:
            if key == name:
                return value
        defaults = defaults_of(self.op)
        if name not in defaults:
            raise GraphError(
                f"{self.op_name} has no attribute {name!r}; it has {', '.join(defaults) or 'none'}."
            )
        return defaults[name]

    def has_attr(self, name: str) -> bool:
        return any(key == name for key, _ in self.attrs) or name in defaults_of(self.op)

    def given(self, inputs: Iterable[GraphNode], **attrs: Any) -> GraphNode:
        """The same operator on other inputs, with some attributes changed."""
        return apply(self.op, tuple(inputs), {**dict(self.attrs), **attrs}, self.output)

    @property
    def tables(self) -> tuple[int, ...]:
        """The positions of inputs that do not broadcast, though the operator is elementwise."""
        return OPERATORS.get(self.op).tables if isinstance(self.op, str) else ()

    def flops(self) -> int:
        """Floating-point operations of one evaluation of the operator."""
        if isinstance(self.op, TeFunction):
            return self.op.dag.flops()
        return flops_of(self.op, tuple(x.type for x in self.inputs), self.attrs)

    def __repr__(self) -> str:
        return f"Apply({self.op_name}, {type_text(self.type)})"


def constant(array: Any, name: str = "", dtype: DType | str | None = None) -> Constant:
    """The array as a node; equal arrays give one node."""
    return Constant(Data.of(np.asarray(array, None if dtype is None else dtype_of(dtype).numpy)), name)


def apply(
    op: str | TeFunction, inputs: Iterable[GraphNode], attrs: Mapping[str, Any] | None = None, output: int = 0
) -> Apply:
    """A node. Attributes with their default value are dropped, so that equal calls are equal nodes."""
    defaults = defaults_of(op)
    kept = {k: frozen(v) for k, v in (attrs or {}).items()}
    items = tuple(
        sorted((k, v) for k, v in kept.items() if k not in defaults or repr(v) != repr(defaults[k]))
    )
    node: Apply = Apply(op, tuple(inputs), items, output)
    return node


def as_node(value: Any, *likes: DType) -> GraphNode:
    """A node from a node, an array or a number. A number gets the first type of `likes` that can hold it.

    Raises GraphError for anything else.
    """
    if isinstance(value, GraphNode):
        return value
    if isinstance(value, (bool, int, float)):
        usual = dtype_of("float32" if isinstance(value, float) else "int64")
        return constant(value, dtype=next((t for t in likes if _has(t, value)), usual))
    if isinstance(value, (np.ndarray, np.generic)):
        return constant(value)
    raise GraphError(
        f"{type(value).__name__} cannot be part of a graph.", fix="Give a node, an array or a number."
    )


def _has(dtype: DType, value: bool | int | float) -> bool:
    """Whether a type can hold numbers of this kind: 0.5 is not an integer, 2 is not a bool."""
    if isinstance(value, bool):
        return True
    return dtype.is_float or (dtype.is_int and isinstance(value, int))


def _binary(op: str, a: Any, b: Any) -> GraphNode:
    like = a.dtype if isinstance(a, GraphNode) else b.dtype
    return apply(op, (as_node(a, like), as_node(b, like)))


# -- graphs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Represents a node of a pickled graph."""

    number: int


def _flat(value: Any, places: Mapping[GraphNode, int]) -> Any:
    if isinstance(value, GraphNode):
        return _Place(places[value])
    return tuple(_flat(v, places) for v in value) if type(value) is tuple else value


def _unflat(value: Any, nodes: Sequence[GraphNode]) -> Any:
    if isinstance(value, _Place):
        return nodes[value.number]
    return tuple(_unflat(v, nodes) for v in value) if type(value) is tuple else value


def _unpickled(kinds: Sequence[tuple[type[GraphNode], tuple[Any, ...]]], rest: tuple[Any, ...]) -> Graph:
    nodes: list[GraphNode] = []
    for kind, fields in kinds:
        nodes.append(kind(*_unflat(fields, nodes)))
    return Graph(*_unflat(rest, nodes))


@dataclass(frozen=True)
class Graph(ShownInNotebooks):
    """A function from `inputs` to `outputs`; compile_model, plan_model and tune_model take a graph.

    It prints as a list of operators with their types; `explain()` shows the result of each pass.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[GraphNode, ...]
    name: str = "model"
    output_names: tuple[str, ...] = ()  # () means output, or output_0, output_1 …

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs"):
            value = getattr(self, field)
            object.__setattr__(self, field, (value,) if isinstance(value, GraphNode) else tuple(value))
        if wrong := [x for x in self.inputs if not isinstance(x, Input)]:
            raise GraphError(f"graph {self.name!r}: {wrong[0]!r} is listed as an input but is not one.")
        if not self.output_names:
            object.__setattr__(self, "output_names", self._default_names())
        if not self.outputs or len(self.output_names) != len(self.outputs):
            raise GraphError(
                f"graph {self.name!r} has {len(self.outputs)} outputs and {len(self.output_names)} names."
            )
        given = (*self.input_names, *self.output_names)
        if len(set(given)) != len(given):
            raise GraphError(f"graph {self.name!r} uses a name twice: {', '.join(given)}.")
        if free := [n for n in self.nodes if isinstance(n, Input) and n not in self.inputs]:
            raise GraphError(
                f"graph {self.name!r} reads {free[0].name!r} {type_text(free[0].type)}, not an input of it.",
                fix="List it in `inputs`.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """The graph as a list of nodes, because pickle cannot recurse as deep as a deep model."""
        listed = tuple(dict.fromkeys((*self.inputs, *self.nodes)))
        places = {node: n for n, node in enumerate(listed)}
        kinds = [(type(node), _flat(node.fields(), places)) for node in listed]
        ends = _flat((self.inputs, self.outputs), places)
        return _unpickled, (kinds, (*ends, self.name, self.output_names))

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self  # a graph never changes

    def _default_names(self) -> tuple[str, ...]:
        several = len(self.outputs) > 1
        names = tuple(f"output_{n}" for n in range(len(self.outputs))) if several else ("output",)
        while set(names) & set(self.input_names):
            names = tuple(f"{n}_" for n in names)
        return names

    @cached_property
    def nodes(self) -> tuple[GraphNode, ...]:
        """All nodes, producers first, in the order in which the outputs need them."""
        return tuple(topological(self.outputs))

    @property
    def applies(self) -> tuple[Apply, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Apply))

    @property
    def constants(self) -> tuple[Constant, ...]:
        return tuple(n for n in self.nodes if isinstance(n, Constant))

    @cached_property
    def consumers(self) -> Mapping[GraphNode, tuple[Apply, ...]]:
        """The readers of a node. A reader is listed once for each time that it reads the node."""
        found: dict[GraphNode, list[Apply]] = {n: [] for n in self.nodes}
        for node in self.applies:
            for x in node.inputs:
                found[x].append(node)
        return {n: tuple(c) for n, c in found.items()}

    def uses(self) -> dict[GraphNode, int]:
        """How often a node is read; each use as an output counts, too."""
        counts = {n: len(c) for n, c in self.consumers.items()}
        for out in self.outputs:
            counts[out] += 1
        return counts

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """One name for each input; if two have the same name x, they become x and x_1."""
        taken: set[str] = set()
        return tuple(free_name(node.name, taken) for node in self.inputs)

    def count(self, op: str | None = None) -> int:
        """Number of applied operators, or of those with this name."""
        return sum(op is None or n.op_name == op for n in self.applies)

    def flops(self) -> int:
        """Floating-point operations of one call."""
        return sum(n.flops() for n in self.applies)

    def explain(self) -> Explanation:
        """A report to print on the graph's compilation: the graph after each pass, fused groups, memory."""
        # that file imports the passes, and the passes import graphs
        from autotensor.graph.explain import explain

        return explain(self)

    def with_outputs(self, outputs: Iterable[GraphNode]) -> Graph:
        """The graph with the same inputs, and with as many other nodes as outputs, which keep their names."""
        return replace(self, outputs=tuple(outputs))

    @cached_property
    def key(self) -> str:
        """32 hexadecimal digits that identify the whole graph, constants included."""
        number = {node: n for n, node in enumerate((*self.inputs, *self.nodes))}
        lines = [f"{self.input_names} {self.output_names} {[number[o] for o in self.outputs]}"]
        for node in number:
            match node:
                case Apply(op, inputs, attrs, output):
                    name = op if isinstance(op, str) else f"{op.name} {op.key}"
                    lines.append(f"{name} {[number[x] for x in inputs]} {attrs} {output}")
                case Constant(data):  # without its name, which is the first name that these bytes had
                    lines.append(data.digest)
                case _:
                    lines.append(type_text(node.type))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def topological(
    outputs: Iterable[GraphNode],
    known: Container[GraphNode] = (),
    resolve: Callable[[GraphNode], GraphNode] = lambda node: node,
) -> Iterator[GraphNode]:
    """The nodes below the outputs, producers first, but none below `known`. It does not recurse.

    resolve: gives the node that replaces another one.
    """
    done: set[GraphNode] = set()
    stack = [(resolve(out), False) for out in reversed(tuple(outputs))]
    while stack:
        node, ready = stack.pop()
        if node in done:
            continue
        if ready or not isinstance(node, Apply) or node in known:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((resolve(x), False) for x in reversed(node.inputs))


# -- text ------------------------------------------------------------------------------------------------


def _constant_text(node: GraphNode) -> str:
    assert isinstance(node, Constant)
    if node.array.size == 1 and not node.name:
        return f"{node.array.reshape(-1)[0]!s}"
    return f"{node.name or 'const'}: {type_text(node.type)}"


def _lines(graph: Graph) -> Iterator[str]:
    names: dict[GraphNode, str] = dict(zip(graph.inputs, graph.input_names, strict=True))
    args = ", ".join(
        f"{name}: {type_text(x.type)}" for x, name in zip(graph.inputs, graph.input_names, strict=True)
    )
    yield f"graph {graph.name}({args}):"
    for n, node in enumerate(graph.applies):
        names[node] = f"%{n}"
        read = [names.get(x) or _constant_text(x) for x in node.inputs]
        parts = [*read, *(f"{k}={v}" for k, v in node.attrs)]
        result = f".{node.output}" if node.results > 1 else ""
        yield f"    {names[node]} = {node.op_name}({', '.join(parts)}){result}  # {type_text(node.type)}"
    shown = (names.get(n) or f"({_constant_text(n)})" for n in graph.outputs)
    yield f"    return {', '.join(shown)}"
