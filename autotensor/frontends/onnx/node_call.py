"""The node that is being imported: its operands and attributes, in the forms that converters need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotensor.base.dtype import DType
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import Array, element_type
from autotensor.frontends.onnx.errors import Malformed
from autotensor.frontends.onnx.messages import NodeProto
from autotensor.graph.ir import GraphNode

if TYPE_CHECKING:  # the importer makes calls, and converters reach the importer through them
    from autotensor.frontends.onnx.importer import Importer

Value = Any  # a GraphNode; a tuple of values (a sequence); None (an optional without a value)
_REQUIRED = object()


class Call:
    """The argument of a converter: one node with its operands."""

    def __init__(
        self,
        importer: Importer,
        node: NodeProto,
        opset: int,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
    ) -> None:
        self.importer = importer
        self.node = node
        self.op = node.op_type
        self.opset = opset
        self.inputs = tuple(inputs)
        self.attrs = attrs
        self.opsets: Mapping[str, int] = {}  # the opsets of the graph that holds the node, for subgraphs
        # the attributes of the function that holds the node
        self.outer_attrs: Mapping[str, Any] | None = None

    # -- operands ----------------------------------------------------------------------------------------
    def value(self, n: int) -> Value:
        """Operand n, which may be a sequence or nothing."""
        return self.inputs[n] if n < len(self.inputs) else None

    def get(self, n: int) -> GraphNode | None:
        """Operand n as a tensor; None when it was left out."""
        found = self.value(n)
        if found is not None and not isinstance(found, GraphNode):
            raise Malformed(f"{self.where}: operand {n} is a sequence, expected a tensor.")
        return found

    def __getitem__(self, n: int) -> GraphNode:
        found = self.get(n)
        if found is None:
            raise Malformed(f"{self.where}: operand {n} is missing.")
        return found

    @property
    def tensors(self) -> tuple[GraphNode, ...]:
        """All operands of a node that leaves none out."""
        return tuple(self[n] for n in range(len(self.inputs)))

    @property
    def rank(self) -> int:
        """The number of axes of the first operand."""
        return self[0].ndim

    def array(self, n: int) -> Array:
        """The value of operand n. If it is not known yet, it is computed while the model runs."""
        return self.importer.demand(self[n], self.where)

    def known(self, n: int) -> Array | None:
        """The value of operand n if it is known now, else None."""
        node = self.get(n)
        return None if node is None else self.value_of(node)

    def value_of(self, node: GraphNode) -> Array | None:
        """The value of a node if it is known now, else None."""
        return None if self.importer.is_open(node) else self.importer.demand(node, self.where)

    def ints(self, n: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Operand n as whole numbers; the default, if there is one, when the operand was left out."""
        if default is not None and self.get(n) is None:
            return default
        array = self.array(n)
        if array.dtype.kind not in "iu":
            raise Malformed(f"{self.where}: operand {n} is {array.dtype}, expected integers.")
        return tuple(int(v) for v in array.reshape(-1))

    def scalar(self, n: int, default: Any = _REQUIRED) -> Any:
        """Operand n, which has one element, as a Python number; the default when it was left out."""
        if default is not _REQUIRED and self.get(n) is None:
            return default
        array = self.array(n)
        if array.size != 1:
            raise Malformed(f"{self.where}: operand {n} has shape {array.shape}, expected one element.")
        return array.reshape(-1)[0].item()

    # -- attributes --------------------------------------------------------------------------------------
    def attr(self, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute: a number, a string, a tuple of these, a graph, or a tensor (as an array)."""
        if name in self.attrs:
            return self.attrs[name]
        if default is _REQUIRED:
            raise Malformed(f"{self.where}: attribute {name!r} is missing.")
        return default

    def whole(self, name: str, default: Any = _REQUIRED) -> int:
        return int(self.attr(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.attr(name, default))

    def dtype_attr(self, name: str, default: int | None = None) -> DType:
        """An attribute that names an element type."""
        number = self.attr(name) if default is None else self.attr(name, default)
        return element_type(int(number), self.where)

    def axis(self, default: int = 0, name: str = "axis", rank: int | None = None) -> int:
        """An axis counted from the front."""
        return self.axes((self.whole(name, default),), rank)[0]

    def axes(self, given: Sequence[int], rank: int | None = None) -> tuple[int, ...]:
        """Axes counted from the front. Raises Malformed for one that does not exist."""
        n = self.rank if rank is None else rank
        for a in given:
            if not -n <= a < n:
                raise Malformed(f"{self.where}: axis {a} does not exist; there are {n}.")
        return tuple(int(a) % n for a in given)

    def ints_or_attr(self, n: int, name: str) -> tuple[int, ...] | None:
        """A value that is an attribute in older opsets and an operand in newer ones; None if left out."""
        if self.get(n) is not None:
            return self.ints(n)
        found = self.attr(name, None)
        return None if found is None else tuple(int(v) for v in found)

    # -- the rest ----------------------------------------------------------------------------------------
    @property
    def where(self) -> str:
        """The node's description for messages: it has the node's name, or that of its first result if the
        node has none."""
        result = next((f" of {name!r}" for name in self.node.output if name), "")
        label = f" {self.node.name!r}" if self.node.name else result
        domain = f"{self.node.domain}." if self.node.domain not in ("", "ai.onnx") else ""
        return f"node{label} ({domain}{self.op}, opset {self.opset})"

    @property
    def outputs(self) -> int:
        """How many results are listed (some may be unused)."""
        return len(self.node.output)

    def wants(self, n: int) -> bool:
        """Whether result n has a name, so that another node may read it."""
        return n < len(self.node.output) and bool(self.node.output[n])

    def unsupported(self, what: str, fix: str = "") -> Unsupported:
        return Unsupported(f"{self.where}: {what}", fix=fix)

    def malformed(self, what: str) -> Malformed:
        return Malformed(f"{self.where}: {what}")

    def on_host(
        self, fn: Callable[..., tuple[Array, ...]], operands: Sequence[GraphNode]
    ) -> tuple[GraphNode, ...]:
        """The results of a Python function of the operands' values. It runs between two compiled parts."""
        return self.importer.host(fn, operands, self.where)
