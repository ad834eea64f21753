"""Backward passes under a memory budget: some values are computed twice instead of kept.

    forward    x ─▶ a ─▶ b ─▶ c ─▶ d ─▶ e ─▶ loss         kept: values across a cut, and the last segment
                      ╎           ╎
    backward   … ◀─ e ◀─ d ◀─ (a' b' c' again, from a) ◀─ …

The forward pass is cut into segments of about equal bytes. A value that a later segment reads is kept. All
other values are dropped after the forward pass, and the backward pass computes a segment's values again just
before it needs them. n layers in sqrt(n) segments take about 2*sqrt(n) values instead of n, for at most one
more forward pass. Source: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from autotensor.base.errors import GraphError
from autotensor.graph.graph_rewriting import with_inputs
from autotensor.graph.groups import Group
from autotensor.graph.ir import Apply, Graph, GraphNode, Input, apply, topological
from autotensor.graph.memory import Lifetime, MemoryPlan, plan
from autotensor.graph.partition import last_readers, own_outputs, partition
from autotensor.graph.replace_nodes import replaced
from autotensor.graph.rules import optimize
from autotensor.graph.storage import storage
from autotensor.operators import Kind


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to cut the forward pass."""

    segments: int  # 1: everything is kept
    bytes: int  # most bytes of intermediate values at one time
    flops: int  # operations of the forward and the backward pass

    def __str__(self) -> str:
        return f"{self.segments:8d} {self.bytes / 1024:14,.1f} {self.flops / 1e6:14,.2f}"


@dataclass(frozen=True, slots=True)
class TradeOff:
    """The plans that were tried, beginning with the one that keeps everything; the last one was taken."""

    budget: int
    choices: tuple[Choice, ...]

    @property
    def chosen(self) -> Choice:
        return self.choices[-1]

    @property
    def saved(self) -> float:
        """The share of the intermediate values' bytes that is saved."""
        return 1 - self.chosen.bytes / max(1, self.choices[0].bytes)

    @property
    def cost(self) -> float:
        """The operations that are computed a second time, as a share of the operations of both passes if
        every value is kept."""
        return self.chosen.flops / max(1, self.choices[0].flops) - 1

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{'segments':>8} {'KiB':>14} {'MFLOP':>14}",
                *map(str, self.choices),
                f"budget {self.budget / 1024:,.1f} KiB: {self.chosen.segments} segments, "
                f"{self.saved:.0%} less memory for {self.cost:.0%} more operations",
            ]
        )


def within_budget(
    results: Sequence[GraphNode], slopes: Sequence[GraphNode], budget: int
) -> tuple[tuple[GraphNode, ...], TradeOff]:
    """The gradients `slopes` in a form that fits into the budget, with the fewest possible segments.

    results: the results of the forward pass. slopes: the gradients in the order in which they should be
    computed, last layers first.
    Raises GraphError if nothing fits; the error names the least possible budget.
    """
    tried: list[Choice] = []
    for segments in _counts(sum(isinstance(n, Apply) for n in topological(results))):
        made = recomputing(results, slopes, segments)
        tried.append(_choice(results, made, segments))
        if tried[-1].bytes <= budget:
            return made, TradeOff(budget, tuple(tried))
    least = min(tried, key=lambda c: c.bytes)
    raise GraphError(
        f"the step's intermediate values do not fit in {budget} bytes; {least.bytes} is the least, "
        f"with {least.segments} segments.",
        fix="Give a larger memory_budget, or smaller batches.",
    )


def _counts(nodes: int) -> Iterator[int]:
    """Numbers of segments to try: 1, 2, 3, 4, 6, 8, … up to twice the root of the number of nodes."""
    n = 1
    while n == 1 or n <= 2 * isqrt(nodes) + 1:
        yield n
        n += max(1, n // 2)


def recomputing(
    results: Sequence[GraphNode], slopes: Sequence[GraphNode], segments: int
) -> tuple[GraphNode, ...]:
    """The gradients; the values inside all segments except the last one are computed again."""
    forward = [n for n in topological(results) if isinstance(n, Apply)]
    kept = _kept(forward, segments)
    again: dict[GraphNode, GraphNode] = {}

    def read(x: GraphNode) -> GraphNode:
        """The node that a second computation reads in the place of x."""
        if x in again:
            return again[x]
        varies = x in kept or (isinstance(x, Input) and type(x) is Input)
        return apply("recomputed", (x,)) if varies else x

    for node in forward:
        if node not in kept:
            again[node] = with_inputs(node, tuple(read(x) for x in node.inputs))
    return replaced(slopes, again)


def _kept(forward: Sequence[Apply], segments: int) -> set[GraphNode]:
    """Values that are read across a cut, and those of the last segment."""
    sizes = [0 if n.kind is Kind.VIEW else _bytes(n) for n in forward]
    total, seen = sum(sizes), 0
    segment: dict[GraphNode, int] = {}
    for node, size in zip(forward, sizes, strict=True):
        segment[node] = min(segments - 1, seen * segments // max(1, total))
        seen += size
    kept: set[GraphNode] = {n for n in forward if segment[n] == segments - 1}
    for node in forward:
        kept |= {x for x in node.inputs if x in segment and segment[x] != segment[node]}
    # A view has no bytes of its own, so the value that it views is kept too.
    kept |= {storage(n) for n in kept} & set(segment)
    return kept


def _bytes(node: GraphNode) -> int:
    return prod(node.shape) * node.dtype.bytes


def _choice(results: Sequence[GraphNode], slopes: Sequence[GraphNode], segments: int) -> Choice:
    outputs = (*results, *slopes)
    inputs = tuple(x for x in topological(outputs) if isinstance(x, Input))
    names = tuple(f"result_{n}" for n in range(len(outputs)))
    groups = partition(own_outputs(optimize(Graph(inputs, outputs, "step", names))))
    return Choice(segments, values_plan(groups).arena_bytes, sum(g.flops for g in groups))


def values_plan(groups: Sequence[Group]) -> MemoryPlan:
    """Memory of values between groups; results and kernels' own workspaces are not counted."""
    last = last_readers(groups)
    return plan(
        [
            Lifetime(f"{n}.{k}", _bytes(out), n, last.get(out, n))
            for n, g in enumerate(groups)
            for k, out in enumerate(g.outputs)
            if out in last
        ]
    )
