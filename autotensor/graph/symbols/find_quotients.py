"""Finds the extents of a model that are rounded quotients of others (`quotients.py`).

    conv2d(x, w, strides=2)    x: [1, 3, h, w]      at h = 640, 619, 601, …
                               [1, 64, 320, …], [1, 64, 310, …], [1, 64, 301, …]      ──▶  h_1 = (h + 1) // 2

Numbers of a node are compared with the extents that it reads. If several quotients fit all samples but differ
somewhere in the ranges of their symbols, values at which they differ are the next sample. Sums of quotients
are distinguished in the same way (`by_chance.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, compress
from math import gcd

import numpy as np

from autotensor.graph.ir import Apply, Graph
from autotensor.graph.symbols.general_forms import in_general_form, in_general_forms
from autotensor.graph.symbols.graph_families import Choice, GraphFamily
from autotensor.graph.symbols.quotients import Whole
from autotensor.graph.symbols.samples import Column, Samples
from autotensor.graph.symbols.side_by_side import Alike, numbers_of, side_by_side
from autotensor.ir.expr import Symbol
from autotensor.te.symbols import Extent, symbols_of

GREATEST_DIVISOR = 64
FACTORS = (1, 3, 5, 7)  # an image at 3/4 of its size has 3*h // 4 rows
MOST_SAMPLES = 24

# a number that is scale * ((times * x + plus) // by) + shift
Form = tuple[int, int, int, int, int]  # by, plus, times, scale, shift


def sampled(family: GraphFamily, wide: bool = False) -> tuple[GraphFamily, Samples, list[Graph]]:
    """The family, samples that tell how its numbers follow the symbols, and the graphs at their choices.

    wide: the samples lie apart in any case. If not, they do so only if an extent of a node is a quotient.
    The graphs have general operators in place of special ones if only some of them had the special ones.
    """
    general = in_general_forms(family)
    samples = Samples(family.symbols)
    graphs = [family.at(choice) for choice in samples.choices]
    lesser = [family.at(choice) for choice in samples.lesser]
    if side_by_side([*graphs, *lesser]) is None:
        near, small = (list(map(in_general_form, some)) for some in (graphs, lesser))
        if side_by_side(graphs) is None or side_by_side([*near, *small]) is not None:
            family, graphs, lesser = general, near, small
    if not wide and not needs_quotients(samples, graphs, lesser):
        return family, samples, graphs
    far = [family.at(choice) for choice in samples.far]
    if side_by_side([*graphs, *far]) is None:
        family = general
        graphs, far = (list(map(in_general_form, some)) for some in (graphs, far))
    choices, near = (*samples.choices, *samples.far), graphs
    graphs = [*near, *far]
    great = [n == 0 or not _has_small_axes(g, graphs[0]) for n, g in enumerate(graphs)]
    if sum(great) < len(near):
        great = [True] * len(graphs)
    samples = Samples(family.symbols, tuple(compress(choices, great)))
    graphs = list(compress(graphs, great))
    found, doubt = with_quotients(samples, graphs)
    while doubt is not None:
        samples = replace(samples, chosen=(*samples.choices, doubt))
        graphs.append(family.at(doubt))
        found, doubt = with_quotients(samples, graphs)
    great = [n == 0 or not _has_small_axes(g, graphs[0]) for n, g in enumerate(graphs)]
    fewer = found.at_some(great)
    if fewer is None:
        return family, found, graphs
    return family, fewer, list(compress(graphs, great))


def certain_quotient(
    samples: Samples, numbers: Column, of: Sequence[Symbol]
) -> tuple[Samples, Extent | None]:
    """The only quotient of these symbols that has these numbers, and the samples to which it was added."""
    finder = _Finder(samples)
    found = finder.quotient(numbers, of)
    if found is None or finder.doubt is not None:
        return samples, None
    finder.keep(numbers, found)
    return finder.samples, found


def _has_small_axes(graph: Graph, greatest: Graph) -> bool:
    """Whether an axis has one element, and several elements in the graph at the greatest extents.

    Kernels of such axes have a simpler form.
    """
    alike = side_by_side([graph, greatest]) or ()
    return any(n == 1 < m for a, b in alike for n, m in zip(a.shape, b.shape, strict=True))


def needs_quotients(samples: Samples, graphs: Sequence[Graph], lesser: Sequence[Graph]) -> bool:
    """Whether an extent is not a sum of terms, or is another sum at lesser extents."""
    alike = side_by_side([*graphs, *lesser]) or side_by_side(graphs) or ()
    columns = {column for nodes in alike for column in zip(*(n.shape for n in nodes), strict=True)}
    for column in columns:
        found = samples.expression(column[: len(graphs)])
        if found is None:
            return True
        others = zip(samples.lesser, column[len(graphs) :], strict=False)
        if any(samples.number(found, choice) != other for choice, other in others):
            return True
    return False


def with_quotients(samples: Samples, graphs: Sequence[Graph]) -> tuple[Samples, Choice | None]:
    """The samples with the quotients and numbers of these graphs, and a choice to sample next if in doubt."""
    finder = _Finder(samples)
    for nodes in side_by_side(graphs) or ():
        finder.see(nodes)
        if finder.doubt is not None and len(graphs) < MOST_SAMPLES:
            return samples, finder.doubt
    return finder.samples, finder.samples.by_chance if len(graphs) < MOST_SAMPLES else None


class _Finder:
    """The numbers found so far; `see` is called with producers first."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.known: dict[Column, Extent] = dict(samples.known)
        self.doubt: Choice | None = None

    def see(self, nodes: Alike) -> None:
        """Finds the numbers of a node."""
        read = list(_axes(nodes))
        self._sums(nodes)
        parents = symbols_of(*(self.known.get(column, 0) for column in read))
        for column in zip(*map(numbers_of, nodes), strict=False):
            if len(set(column)) == 1 or not all(type(x) is int for x in column):
                continue
            numbers = tuple(x for x in column if isinstance(x, int))
            if numbers not in self.known:
                self._find(numbers, parents)
            elif numbers not in read:
                self._compare(numbers, parents)
            if self.doubt is not None:
                return

    def _sums(self, nodes: Alike) -> None:
        """Remembers sums of the inputs' extents along one axis, as concatenations have."""
        inputs = [n.inputs if isinstance(n, Apply) else () for n in nodes]
        if len(inputs[0]) < 2 or len({x.ndim for x in inputs[0]}) != 1:
            return
        for axis, column in enumerate(zip(*(n.shape for n in nodes), strict=True)):
            parts = [tuple(x.shape[axis] for x in same) for same in zip(*inputs, strict=True)]
            if len(set(column)) == 1 or tuple(map(sum, zip(*parts, strict=True))) != column:
                continue
            extents = [p[0] if len(set(p)) == 1 else self.known.get(p) for p in parts]
            sums: Iterator[Column] = accumulate(parts, _plus)
            for n, total in enumerate(sums, 1):
                some = [e for e in extents[:n] if e is not None]
                if len(some) == n and total not in self.known:
                    self.keep(total, sum(some[1:], some[0]))

    def keep(self, column: Column, extent: Extent) -> None:
        """Remembers the expression of some numbers."""
        self.known[column] = extent
        self.samples = self.samples.knowing(self.known, self.samples.quotients)

    def _find(self, column: Column, parents: Sequence[Symbol]) -> None:
        found = self.samples.expression(column, parents, short=True)
        if found is None:
            found = self.quotient(column, parents)
        if found is None:
            found = self.samples.expression(column, parents)
        if found is not None:
            self.keep(column, found)

    def quotient(self, column: Column, parents: Sequence[Symbol]) -> Extent | None:
        """The number as a quotient of the first symbol that fits. If several quotients fit, a doubt is
        recorded."""
        known = [q.symbol for q in reversed(self.samples.quotients.all)]
        fitting: dict[Symbol, tuple[Symbol, list[Form]]] = {}  # by symbol of the model: whose quotients fit
        for parent in dict.fromkeys((*parents, *self.samples.symbols, *known)):
            root = self.samples.quotients.root(parent)
            forms = self._forms(column, parent) if root not in fitting else []
            if forms:
                fitting[root] = parent, forms
        if not fitting:
            return None
        (parent, forms), *others = fitting.values()
        by, plus, times, scale, shift = forms[0]
        numbers = [self._whole(parent, f) for f in forms]
        self.doubt = self._differ(parent, numbers)
        for other, its_forms in others if self.doubt is None else ():
            self.doubt = self._apart(parent, numbers[0], other, self._whole(other, its_forms[0]))
        quotients, symbol = self.samples.quotients.with_one(parent, times, plus, by)
        self.samples = self.samples.knowing(self.samples.known, quotients)
        return symbol * scale + shift if (scale, shift) != (1, 0) else symbol

    def _compare(self, column: Column, parents: Sequence[Symbol]) -> None:
        """Records a doubt if a quotient of other nodes has the same numbers and differs elsewhere."""
        known = self.known[column]
        quotients = self.samples.quotients
        if not isinstance(known, Symbol) or known not in quotients.named:
            return
        root, values = quotients.whole(known)
        for parent in parents:
            for form in self._forms(column, parent)[:1]:
                other = self._whole(parent, form)
                if quotients.root(parent) == root:
                    self.doubt = self._differ(parent, [values, other])
                else:
                    self.doubt = self._apart(known, values, parent, other)
                if self.doubt is not None:
                    return

    def _forms(self, column: Column, parent: Symbol) -> list[Form]:
        values = [self.samples.number(parent, c) for c in self.samples.choices]
        return sorted(_forms(column, values))

    def _whole(self, parent: Symbol, form: Form) -> Whole:
        by, plus, times, scale, shift = form
        _, values = self.samples.quotients.whole(parent)
        return (times * values + plus) // by * scale + shift

    def _differ(self, parent: Symbol, numbers: Sequence[Whole]) -> Choice | None:
        """A choice at which most of the numbers differ; None if they are equal everywhere."""
        root, _ = self.samples.quotients.whole(parent)
        different = np.array([len(set(column)) for column in np.stack(numbers).T.tolist()])
        if different.max() == 1:
            return None
        # the greatest, because kernels of axes with one element have another form
        place = np.flatnonzero(different == different.max())[-1]
        return {**self.samples.choices[1], root: root.least + int(place)}

    def _apart(self, one: Symbol, its: Whole, other: Symbol, others: Whole) -> Choice | None:
        """A choice at which a quotient differs from a quotient of another symbol of the model.

        Fewer rows and fewer columns may have the same small numbers at all samples.
        """
        root, _ = self.samples.quotients.whole(one)
        other_root, _ = self.samples.quotients.whole(other)
        places = np.flatnonzero(others != its[-1])
        if not places.size:
            return None
        return {**self.samples.choices[1], root: root.most, other_root: other_root.least + int(places[-1])}


def _axes(nodes: Alike) -> Iterator[Column]:
    """The extents that a node reads, at each sample; the extents of an input if the node is one."""
    inputs = [n.inputs if isinstance(n, Apply) else (n,) for n in nodes]
    for same in zip(*inputs, strict=True):
        yield from zip(*(x.shape for x in same), strict=True)


def _plus(a: Column, b: Column) -> Column:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _forms(column: Column, values: Sequence[int]) -> Iterable[Form]:
    """The quotients of these values that equal the numbers of a column."""
    step = gcd(*(x - column[0] for x in column))
    for scale in {1, step}:
        shift = column[0] % scale if scale > 1 else 0
        wanted = [(x - shift) // scale for x in column]
        yield from ((by, plus, times, scale, shift) for by, plus, times in _quotients(wanted, values))


def _quotients(wanted: Sequence[int], values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    reach, turns = max(values) - min(values), max(wanted) - min(wanted)
    if turns < 1:
        return
    for times in FACTORS:
        least = max(2, times * reach // (turns + 1))
        most = min(times * reach // max(turns - 1, 1) + 1, GREATEST_DIVISOR)
        found = []
        for by in range(least, most + 1):
            if gcd(times, by) > 1:
                continue
            begins = [by * w - times * x for w, x in zip(wanted, values, strict=True)]
            found += [(by, plus, times) for plus in range(max(begins), min(begins) + by)]
        yield from found
        if found:
            return


__all__ = ["certain_quotient", "needs_quotients", "sampled", "with_quotients"]
