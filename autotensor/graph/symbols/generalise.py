"""Joins the groups of several sample numbers to groups for all: equal parts stay, others follow the symbols.

    dense at n = 8, 7, 5, 3        t0: i0 in 8*16 | 7*16 | 5*16 | 3*16     ──▶  t0: i0 in n*16

Kernels are compared as the texts of their workloads, number by number. Bytes, and the places of windows in
other values, are compared in the same way. A number that is not a sum of terms of the symbols (`samples.py`)
is refused; a model that has different kernels at different numbers is refused, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import isclose, lcm, prod
from typing import Any

import numpy as np

from autotensor.base.dtype import DType, dtype_of, float32, float64, int64
from autotensor.base.errors import GraphError
from autotensor.graph.groups import Group
from autotensor.graph.ir import Apply, Array, Constant, Graph, GraphNode, Input
from autotensor.graph.storage import place, storage
from autotensor.graph.symbols.find_quotients import certain_quotient
from autotensor.graph.symbols.followed_constants import unforeseen
from autotensor.graph.symbols.graph_families import Choice, GraphFamily, said
from autotensor.graph.symbols.quotients import KernelSymbols
from autotensor.graph.symbols.samples import Column, Samples
from autotensor.graph.symbols.side_by_side import numbers_of, side_by_side
from autotensor.ir.expr import Expr, Symbol, as_expr, cast, const
from autotensor.te.open_shapes import formula
from autotensor.te.symbols import Extent, number, product, symbols_of
from autotensor.te.workload import Workload, dag_from_json, expr_to_json


class UnknownExtent(GraphError):
    """An extent does not follow from the samples. It may follow from more samples."""


Cut = tuple[Graph, tuple[Group, ...]]  # a graph, and its groups
MOST_DIVISOR = 1024  # of a quotient whose divisor is a number; float32 tells such quotients apart
BY_SHAPE = "Compile it for each set of shapes that is needed, and put these into one: at.by_shape."


@dataclass(frozen=True)
class OpenLayout:
    """The numbers of a linked model that follow the symbols, by group and by its result or input."""

    symbols: tuple[Symbol, ...]
    shapes: Mapping[str, tuple[Extent, ...]]  # the shapes of the model's inputs and outputs
    bytes: Mapping[tuple[int, int], Extent]  # the bytes of results
    windows: Mapping[tuple[int, int], Extent]  # by group and input: where a window begins in its value
    kernels: tuple[tuple[Extent, ...], ...]  # by group: the values of its kernel's symbols, in their order

    def plain(self) -> dict[str, Any]:
        """The symbols and the model's shapes as JSON, as `te/open_shapes.py` writes those of one DAG."""
        open_ = {n: s for n, s in self.shapes.items() if not all(isinstance(e, int) for e in s)}
        return {
            "symbols": [[s.name, s.least, s.most] for s in self.symbols],
            "shapes": {name: [formula(e) for e in shape] for name, shape in open_.items()},
        }


def generalised(name: str, samples: Samples, cuts: Sequence[Cut]) -> tuple[tuple[Group, ...], OpenLayout]:
    """The groups of the first cut with symbols in their workloads, and all other numbers that follow symbols.

    cuts: the groups of the graphs at `samples.choices`.
    Raises GraphError, which names the kernel, for a number that does not follow the symbols.
    """
    return _Family(name, samples, cuts).open()


def check_others(family: GraphFamily, samples: Samples, graphs: Sequence[Graph], opened: OpenLayout) -> None:
    """Raises GraphError unless graphs at lesser extents have the numbers that follow from the samples.

    graphs: the graphs at `samples.choices`, as the family makes them.
    """
    for choice in samples.lesser:
        graph = family.at(choice)
        for name, node in zip(graph.output_names, graph.outputs, strict=True):
            wanted = tuple(number(n, choice) for n in opened.shapes[name])
            if node.shape != wanted:
                raise GraphError(
                    f"model {family.name!r}: at {said(choice)}, result {name!r} is {list(node.shape)}; the "
                    f"graphs at greater extents predict {list(wanted)}.",
                    fix=BY_SHAPE,
                )
        alike = side_by_side([*graphs, graph]) or []
        if not alike and side_by_side(graphs) and _units(graph) == _units(graphs[0]):
            raise GraphError(
                f"model {family.name!r}: at {said(choice)}, the graph has other operators than at greater "
                f"extents, as at {said(samples.choices[0])}.",
                fix=BY_SHAPE,
            )
        others = (other for *seen, other in alike if not _is_foretold(samples, choice, seen, other))
        other = next(others, None) or unforeseen(samples, choice, alike)
        if other is not None:
            what = other.op_name if isinstance(other, Apply) else "constant"
            raise GraphError(
                f"model {family.name!r}: at {said(choice)}, {what!r} {list(other.shape)} has a number that "
                f"the graphs at greater extents, such as {said(samples.choices[0])}, do not predict.",
                fix=BY_SHAPE,
            )


def _units(graph: Graph) -> int:
    """The number of axes with one element. Front ends leave out what does nothing on such an axis."""
    return sum(node.shape.count(1) for node in graph.nodes)


def _is_foretold(samples: Samples, choice: Choice, seen: Sequence[GraphNode], other: GraphNode) -> bool:
    """Whether a node has the numbers that follow from the same node at the samples."""
    for *known, found in zip(*map(numbers_of, (*seen, other)), strict=False):
        follows = samples.value(known, choice)
        if follows is not None and found != follows and not _is_rounded(found, follows):
            return False
    return True


def _is_rounded(found: object, follows: object) -> bool:
    """Whether two numbers that are not whole are equal up to rounding."""
    if not isinstance(found, float) or not isinstance(follows, float) or follows.is_integer():
        return False
    return isclose(found, follows, rel_tol=1e-3)


class _Family:
    def __init__(self, name: str, samples: Samples, cuts: Sequence[Cut]) -> None:
        self.name, self.samples, self.cuts = name, samples, cuts

    def open(self) -> tuple[tuple[Group, ...], OpenLayout]:
        flows = [_flow(graph, groups) for graph, groups in self.cuts]
        for n, other in enumerate(flows):
            if other != flows[0]:
                raise GraphError(
                    f"model {self.name!r} is computed by other kernels at {self.said(n)} than at "
                    f"{self.said(0)}{_first_difference(flows[0], other)}.",
                    fix=BY_SHAPE,
                )
        self.cuts = _with_numbers(self.cuts)
        groups = [g for _, g in self.cuts]
        opened = [self.group(same) for same in zip(*groups, strict=True)]
        return tuple(group for group, _ in opened), OpenLayout(
            self.samples.symbols,
            self.shapes(),
            {
                (n, k): self.bytes(same, k)
                for n, same in enumerate(zip(*groups, strict=True))
                for k in range(len(same[0].outputs))
            },
            self.windows(),
            tuple(symbols for _, symbols in opened),
        )

    def said(self, n: int) -> str:
        """A choice as text for people."""
        return said(self.samples.choices[n])

    def extent(self, numbers: Sequence[int], what: str, among: Sequence[Symbol] = ()) -> Extent:
        """The numbers at the samples as one expression of the model's symbols and its quotients."""
        found = self.samples.expression(numbers, among)
        if found is None:
            symbols = tuple(dict.fromkeys((*among, *self.samples.symbols)))
            self.samples, found = certain_quotient(self.samples, tuple(numbers), symbols)
        if found is None:
            told = "; ".join(f"{number} at {self.said(n)}" for n, number in enumerate(numbers[:3]))
            raise UnknownExtent(
                f"model {self.name!r}: {what} has an extent that is not a sum of products of the symbols and "
                f"their rounded quotients: {told}.",
                fix=BY_SHAPE,
            )
        return found

    def ratio(
        self, numbers: Sequence[float], dtype: DType, among: Sequence[Symbol]
    ) -> tuple[Extent, Extent] | None:
        """Two extents whose quotient, rounded to the type, is each of these numbers at its sample.

        The divisor is a number, or an extent or one less, as in steps from the first element to the last.
        """
        below: dict[Column, Extent] = {}
        divisor = lcm(*(Fraction(x).limit_denominator(MOST_DIVISOR).denominator for x in numbers))
        if divisor <= MOST_DIVISOR:
            below[(divisor,) * len(numbers)] = divisor
        for column, extent in {**self.extents, **self.samples.known}.items():
            below[column] = extent
            below[tuple(n - 1 for n in column)] = extent - 1
        for column, extent in below.items():
            above = [round(x * n) for x, n in zip(numbers, column, strict=True)]
            parts = zip(above, column, numbers, strict=True)
            if all(n and float(dtype.numpy.type(a / n)) == x for a, n, x in parts):
                found = self.samples.expression(above, among)
                if found is not None:
                    return found, extent
        return None

    @cached_property
    def extents(self) -> dict[Column, Extent]:
        """The extents of the results of all groups that follow the symbols, and the symbols themselves."""
        found: dict[Column, Extent] = {}
        for same in zip(*(groups for _, groups in self.cuts), strict=True):
            for results in zip(*(g.outputs for g in same), strict=True):
                for column in zip(*(x.shape for x in results), strict=True):
                    extent = self.samples.expression(column)
                    if isinstance(extent, Expr):
                        found[column] = extent
        return found | {tuple(c[s] for c in self.samples.choices): s for s in self.samples.symbols}

    def shapes(self) -> dict[str, tuple[Extent, ...]]:
        graphs = [graph for graph, _ in self.cuts]
        named: dict[str, list[GraphNode]] = {
            n: [g.inputs[k] for g in graphs] for k, n in enumerate(graphs[0].input_names)
        }
        named |= {n: [g.outputs[k] for g in graphs] for k, n in enumerate(graphs[0].output_names)}
        return {name: self.shape(repr(name), [x.shape for x in nodes]) for name, nodes in named.items()}

    def shape(
        self, what: str, shapes: Sequence[tuple[int, ...]], among: Sequence[Symbol] = ()
    ) -> tuple[Extent, ...]:
        found = (self.extent(numbers, what, among) for numbers in zip(*shapes, strict=True))
        return tuple(map(self.samples.quotients.in_full, found))

    def bytes(self, same: Sequence[Group], k: int) -> Extent:
        """The bytes of a result."""
        shapes = [g.outputs[k].shape for g in same]
        extents = self.shape(f"kernel {same[0].name!r}", shapes, self.read(same))
        return product((same[0].outputs[k].dtype.bytes, *extents))

    def windows(self) -> dict[tuple[int, int], Extent]:
        found = {}
        made = [{o for g in groups for o in g.outputs} for _, groups in self.cuts]
        for n, same in enumerate(zip(*(groups for _, groups in self.cuts), strict=True)):
            for k in range(len(same[0].inputs)):
                offsets = [place(g.inputs[k], m).offset for g, m in zip(same, made, strict=True)]
                if any(offsets):
                    extent = self.extent(offsets, f"kernel {same[0].name!r}", self.read(same))
                    found[n, k] = self.samples.quotients.in_full(extent)
        return found

    def read(self, same: Sequence[Group]) -> tuple[Symbol, ...]:
        """The symbols, and symbols of quotients, in the extents of a group's nodes and of its inputs."""
        return self.symbols_in([(*g.inputs, *(x for n in g.nodes for x in (n, *n.inputs))) for g in same])

    def symbols_in(self, nodes: Sequence[Sequence[GraphNode]]) -> tuple[Symbol, ...]:
        """The symbols in the extents of nodes; nodes: those of each sample."""
        axes = {axis for x in zip(*nodes, strict=True) for axis in zip(*(n.shape for n in x), strict=True)}
        return symbols_of(*(self.samples.expression(axis) for axis in sorted(axes, reverse=True)))

    def group(self, same: Sequence[Group]) -> tuple[Group, tuple[Extent, ...]]:
        """The first group with symbols in its workload, and these symbols' values."""
        texts = [json.loads(g.workload.text) for g in same]
        first = same[0]
        for k, node in enumerate(first.inputs):
            if isinstance(node, Constant):
                self.keep_whole(same, k, texts)
        read, made = self.read(same), self.symbols_in([g.outputs for g in same])
        own = KernelSymbols.of(self.samples.quotients, read, made)
        joined = _Texts(self, first.name, read, own).joined(texts)
        own = replace(own, quotients=self.samples.quotients)  # also those of numbers in the kernel
        dag = dag_from_json(joined)
        return replace(first, workload=Workload.of(dag, first.name)), tuple(map(own.value, dag.symbols()))

    def keep_whole(self, same: Sequence[Group], k: int, texts: Sequence[Any]) -> None:
        """Lets all samples read the first sample's constant, if the others hold only its beginning.

        Tables of positions are cut in this way; the first sample is at the greatest extents of the range. At
        an extent beyond the range, a sample's constant may be longer than the first.
        """
        arrays = [_array(g.inputs[k]) for g in same]
        if all(a.shape == arrays[0].shape and np.array_equal(a, arrays[0]) for a in arrays):
            return
        name = same[0].arg_names[k]
        read = [next(i for i in t["inputs"] if i[0] == name) for t in texts]  # each [name, shape, type]
        if not all(_agree(arrays[0], read[0][1], a, r[1]) for a, r in zip(arrays, read, strict=True)):
            raise GraphError(
                f"model {self.name!r}: kernel {same[0].name!r} reads a constant {list(arrays[0].shape)} that "
                "is another one at other extents.",
                fix=BY_SHAPE,
            )
        for r in read:
            r[1] = read[0][1]


def _with_numbers(cuts: Sequence[Cut]) -> Sequence[Cut]:
    """The cuts, with constants of one number as numbers in the kernels, if they differ between samples.

    These numbers may follow the symbols, as the divisor of a mean does.
    """
    alike = list(zip(*(groups for _, groups in cuts), strict=True))
    for n, same in enumerate(alike):
        several = [
            k
            for k, node in enumerate(same[0].inputs)
            if isinstance(node, Constant)
            and all(_array(g.inputs[k]).size == 1 for g in same)
            and len({_array(g.inputs[k]).tobytes() for g in same}) > 1
        ]
        if several:
            alike[n] = tuple(_inlined(g, several) for g in same)
    of_cuts = zip(*alike, strict=True) if alike else [()] * len(cuts)  # a model may compute nothing
    return [(graph, groups) for (graph, _), groups in zip(cuts, of_cuts, strict=True)]


def _inlined(group: Group, constants: Sequence[int]) -> Group:
    """The group with these inputs, which are single numbers, as numbers in its kernel."""
    values = {group.arg_names[k]: _array(group.inputs[k]).reshape(()) for k in constants}

    def written(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: written(x) for key, x in data.items()}
        if isinstance(data, list) and len(data) == 3 and data[0] == "l" and data[1] in values:
            types = {n: dtype_of(t) for n, _, t in text["inputs"]}
            return expr_to_json(const(values[data[1]].item(), types[data[1]]))
        return [written(x) for x in data] if isinstance(data, list) else data

    text = json.loads(group.workload.text)
    made = written(text)
    made["inputs"] = [x for x in text["inputs"] if x[0] not in values]
    made["constants"] = [x for x in text["constants"] if x not in values]
    made["args"] = [x for x in text["args"] if x not in values]
    return replace(
        group,
        args=tuple(x for k, x in enumerate(group.args) if k not in constants),
        inputs=tuple(x for k, x in enumerate(group.inputs) if k not in constants),
        workload=Workload.of(dag_from_json(made), group.name),
    )


def _agree(whole: Array, whole_read: list[int], part: Array, part_read: list[int]) -> bool:
    """Whether a kernel for the part may get the whole: at each index that it reads, both have the same value.

    Beyond the range of a symbol, the part is longer than the whole, and they must agree as far as both reach.
    *_read: the shapes with which kernels read the bytes of both. If these are the arrays' own shapes, the
    part may be any corner of the whole; otherwise the part must be the beginning of the whole's memory.
    """
    if part.ndim != whole.ndim:
        return False
    corner = tuple(slice(0, min(n, m)) for n, m in zip(whole.shape, part.shape, strict=True))
    if not np.array_equal(part[corner], whole[corner]):
        return False
    if (tuple(whole_read), tuple(part_read)) == (whole.shape, part.shape):
        return True
    cut = [d for d, (n, m) in enumerate(zip(whole.shape, part.shape, strict=True)) if n != m]
    leads = not cut or (len(cut) == 1 and prod(whole.shape[: cut[0]]) == 1)
    return leads and part_read[1:] == whole_read[1:]


@dataclass(frozen=True)
class _Texts:
    """Joins the texts of workloads, as JSON, into one text that follows the symbols."""

    family: _Family
    kernel: str
    read: Sequence[Symbol]  # the symbols in the extents of the kernel's nodes
    own: KernelSymbols

    def extent(self, numbers: Sequence[int]) -> Extent:
        """The numbers at the samples as an expression of the kernel's symbols."""
        return self.own.written(self.family.extent(numbers, f"kernel {self.kernel!r}", self.read))

    def joined(self, same: Sequence[Any]) -> Any:
        first = same[0]
        if all(x == first for x in same):
            return first
        # numbers of shapes and axes; constants have types, see below
        if all(isinstance(x, int) for x in same):
            return self.written(self.extent(same))
        if isinstance(first, dict) and all(x.keys() == first.keys() for x in same):
            return {key: self.joined([x[key] for x in same]) for key in first}
        if isinstance(first, list) and all(isinstance(x, list) and len(x) == len(first) for x in same):
            if first[0] == "c" and all(x[0] == "c" and x[2] == first[2] for x in same):
                return expr_to_json(self.constant([x[1] for x in same], first[2]))
            return [self.joined(list(x)) for x in zip(*same, strict=True)]
        raise GraphError(
            f"model {self.family.name!r}: kernel {self.kernel!r} has another computation at other extents.",
            fix=BY_SHAPE,
        )

    def constant(self, values: Sequence[Any], type_: str) -> Expr:
        """A number in a kernel's body: an extent, or a quotient of two extents as in means and resizes."""
        dtype = dtype_of(type_)
        what = f"kernel {self.kernel!r}"
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            return cast(dtype, as_expr(self.extent(values), int64))
        numbers = [float.fromhex(v) if isinstance(v, str) else float(v) for v in values]
        if all(x.is_integer() for x in numbers):
            return cast(dtype, as_expr(self.extent([int(x) for x in numbers]), int64))
        inverses = [round(1 / x) for x in numbers]
        if all(n and float(dtype.numpy.type(1 / n)) == x for n, x in zip(inverses, numbers, strict=True)):
            return const(1.0, dtype) / cast(dtype, as_expr(self.extent(inverses), int64))
        for rounded in dict.fromkeys((dtype, float32)):  # torch rounds some scales that it keeps in float64
            if ratio := self.family.ratio(numbers, rounded, self.read):
                above, below = (cast(float64, as_expr(self.own.written(e), int64)) for e in ratio)
                return cast(dtype, cast(rounded, above / below))
        raise GraphError(
            f"model {self.family.name!r}: {what} has a number that is {numbers[0]} at {self.family.said(0)} "
            f"and {numbers[1]} at {self.family.said(1)}, neither an extent nor a quotient of two extents.",
            fix=BY_SHAPE,
        )

    @staticmethod
    def written(extent: Extent) -> Any:
        return expr_to_json(extent) if isinstance(extent, Expr) else extent


def _array(node: GraphNode) -> Array:
    assert isinstance(node, Constant), "the flows are equal"
    return node.array


def _flow(graph: Graph, groups: Sequence[Group]) -> list[tuple[Any, ...]]:
    """The sources of each group's inputs and of the model's results."""
    made: dict[GraphNode, tuple[int, int]] = {
        o: (n, k) for n, g in enumerate(groups) for k, o in enumerate(g.outputs)
    }
    inputs = {x: n for n, x in enumerate(graph.inputs)}

    def source(node: GraphNode) -> Any:
        if isinstance(node, Input):
            return "input", inputs[node]
        return "constant" if isinstance(node, Constant) else made.get(place(node, made).of)

    flow: list[tuple[Any, ...]] = [
        ("/".join(n.op_name for n in g.nodes), *map(source, g.inputs)) for g in groups
    ]
    return [*flow, ("outputs", *(source(storage(o)) for o in graph.outputs))]


def _first_difference(a: Sequence[tuple[Any, ...]], b: Sequence[tuple[Any, ...]]) -> str:
    for x, y in zip(a, b, strict=False):
        if x != y:
            return f" ({x[0]} and {y[0]})" if x[0] != y[0] else f" ({x[0]} reads other values)"
    return ""
