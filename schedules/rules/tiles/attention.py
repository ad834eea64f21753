"""Two products with a softmax between them (attention), in blocks of queries that stay in the nearest caches.

    parallel over (batch, head, block of queries)
      turned  = queries of the block, channels first       one vector holds `lanes` queries
      scores  = keys × turned                              register tiles (keys × vectors of queries)
      top;  weights = exp(scores - top);  total            in vectors of queries, so no sums across a vector
      for tiles of queries: mixed = weights × values       register tiles (queries × vectors of channels)
                            out = mixed / total

All scores of a block are kept (32 queries × 1000 keys are 128 KiB). Other systems use a running maximum
instead, which costs more than it saves until a block's scores leave the second-level cache. In causal
attention, loops over keys end with the last key that a block of queries sees (pragmas `skip_zeros` and
`skip_unread`).
Source: Dao et al., "FlashAttention" (2022), for the blocks; the orientation is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from autotensor.base.target import Target
from autotensor.ir.expr import Var
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.mark import Parallel, Vectorize
from autotensor.schedule.primitives.pragma import Pragma
from autotensor.schedule.primitives.reorder import Reorder
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.sketch import Option
from autotensor.schedule.state import Ref, Stage, State
from autotensor.te.dag import StageOp
from schedules.cpu import cpu_of
from schedules.kit.shared_steps import host_and_anchor, in_vectors
from schedules.kit.sketch_writer import SketchWriter
from schedules.kit.stage_analysis import is_constant, lanes_of, matches_elementwise, untouched
from schedules.kit.tiles import singles
from schedules.registry import Extension

BLOCKS = (1, 2, 3, 4)  # numbers of vectors of queries in a block
MOST_INLINED = 4  # pointwise stages that may stand between the attention and the output
CORES = 4  # blocks for every core, so that a slow core does not delay the others


@dataclass(frozen=True, slots=True)
class Chain:
    """The stages of an attention, and the axis of `out` for its queries."""

    turned: Stage
    scores: Stage
    masked: Stage | None
    top: Stage
    weights: Stage
    total: Stage
    mixed: Stage
    out: Stage
    rows: str

    @property
    def names(self) -> tuple[str, ...]:
        found = (
            self.turned,
            self.scores,
            self.masked,
            self.top,
            self.weights,
            self.total,
            self.mixed,
            self.out,
        )
        return tuple(s.name for s in found if s is not None)


def attention(state: State, stage: Stage, target: Target) -> tuple[Extension, ...]:
    if target.kind != "llvm" or not state.is_output(stage) or stage.op.is_reduction or not untouched(stage):
        return ()
    steps, joined = _with_epilogue(state, stage)
    chain = find_chain(joined, joined.stage(stage.name))
    if chain is None:
        return ()
    lanes = lanes_of(stage.op, target)
    if chain.turned.op.axes[-1].extent < lanes or stage.op.axes[-1].extent < lanes:
        return ()
    sketch = _AttentionSketch(chain, target, lanes)
    sketch.write(*steps)
    return (sketch.build(),)


# -- recognising ---------------------------------------------------------------------------------------------


def _with_epilogue(state: State, stage: Stage) -> tuple[tuple[Inline, ...], State]:
    """The steps that inline pointwise stages into the last one until this is the end of an attention, and the
    state after them. No steps if it never is.

        out = mixed / total;  y = select(seen, out, 0)     ──▶     y = select(seen, mixed / total, 0)
    """
    steps: tuple[Inline, ...] = ()
    joined = state
    while find_chain(joined, joined.stage(stage.name)) is None:
        inner = [
            s for s in _producers(joined, joined.stage(stage.name))
            if not s.op.is_reduction and untouched(s) and not joined.is_output(s)
            and [c.name for c in joined.consumers(s)] == [stage.name]
        ]  # fmt: skip
        if not inner or len(steps) >= MOST_INLINED:
            return (), state
        for s in inner:
            steps = (*steps, Inline(s.name))
            joined = steps[-1].apply(joined)
    return steps, joined


def find_chain(state: State, out: Stage) -> Chain | None:
    """The attention that ends in `out`, whatever the names of its stages are; None for any other
    computation."""
    mixed = _only(
        [s for s in _producers(state, out) if s.op.is_reduction and len(s.op.axes) == len(out.op.axes)]
    )
    total = _only([s for s in _producers(state, out) if s is not mixed])
    weights = _only(_producers(state, total)) if total is not None else None
    if mixed is None or weights is None or weights.op.is_reduction or len(mixed.op.axes) < 2:
        return None
    tops = [
        s for s in _producers(state, weights) if s.op.is_reduction and len(s.op.axes) < len(weights.op.axes)
    ]
    top = _only(tops)
    logits = _only([s for s in _producers(state, weights) if s is not top])
    if top is None or logits is None or _producers(state, top) != [logits]:
        return None
    scores = logits if logits.op.is_reduction else _only(_producers(state, logits))
    if scores is None or not scores.op.is_reduction:
        return None
    turned = _only(_producers(state, scores))
    if turned is None or turned.op.is_reduction or _producers(state, turned):
        return None
    masked = None if scores is logits else logits
    rows = _query_axis(out, mixed)
    if rows is None or (masked is not None and not matches_elementwise(masked.op, scores.op)):
        return None
    chain = Chain(turned, scores, masked, top, weights, total, mixed, out, rows)  # type: ignore[arg-type]
    return chain if _is_whole(state, chain) and _is_regular(chain) else None


def _only(found: list[Stage]) -> Stage | None:
    return found[0] if len(found) == 1 else None


def _producers(state: State, stage: Stage | None) -> list[Stage]:
    if stage is None:
        return []
    found = (state.producer(b) for b in stage.op.reads())
    return [s for s in dict.fromkeys(found) if s is not None and not is_constant(state, s)]


def _is_whole(state: State, chain: Chain) -> bool:
    """Whether the chain's stages are free, and no other stage reads their intermediate results."""
    inside = set(chain.names)
    stages = [state.stage(n) for n in chain.names]
    return all(
        untouched(s) and not state.attached(s.name) and inside.issuperset(c.name for c in state.consumers(s))
        and (s is chain.out or not state.is_output(s))
        for s in stages
    )  # fmt: skip


def _is_regular(chain: Chain) -> bool:
    """Whether the axes are […, queries] and […, keys, queries], as in the module's picture, with one
    reduction each."""
    rank = len(chain.mixed.op.axes)
    ranks = [len(s.op.axes) for s in (chain.turned, chain.scores, chain.weights)]
    reductions = (chain.scores, chain.top, chain.total, chain.mixed)
    if any(len(s.op.reduce_axes) != 1 for s in reductions) or ranks != [rank] * 3:
        return False
    if len(chain.top.op.axes) != rank - 1 or len(chain.total.op.axes) != rank - 1:
        return False
    queries = [
        s.op.axes[-1].extent for s in (chain.turned, chain.scores, chain.weights, chain.top, chain.total)
    ]
    outer = [
        tuple(a.extent for a in s.op.axes[: rank - 2]) for s in (chain.turned, chain.weights, chain.mixed)
    ]
    return len({*queries, chain.mixed.op.axes[-2].extent}) == 1 and len(set(outer)) == 1


def _query_axis(out: Stage, mixed: Stage) -> str | None:
    """The axis of `out` that indexes the last axis but one of `mixed`; None unless the axes are only
    permuted."""
    loads = [load for load in out.op.loads() if load.buffer in mixed.op.buffers]
    axes = {a.var: a.name for a in out.op.axes}
    if len(loads) != 1:
        return None
    names = [axes.get(i) if isinstance(i, Var) else None for i in loads[0].indices]
    plain = [
        n if n is not None else a.name  # an axis of one element is read as 0
        for n, a in zip(names, mixed.op.axes, strict=True)
        if n is not None or a.extent == 1
    ]
    if len(plain) != len(names) or names[-1] != out.op.axes[-1].name:
        return None
    return names[-2]


# -- scheduling ----------------------------------------------------------------------------------------------


class _AttentionSketch(SketchWriter):
    """Writes the sketch."""

    def __init__(self, chain: Chain, target: Target, lanes: int) -> None:
        super().__init__()
        self.chain, self.target, self.lanes = chain, target, lanes
        self.block = f"{chain.out.name}/block"  # the hole of its tiles

    def build(self) -> Extension:
        chain = self.chain
        options = self._options()
        self.hole(self.block, options, max(options, key=self._quality))
        block, tile = self._out()
        self._mixed(tile)
        self._over_keys(chain.total, block)  # readers first, because a stage is placed inside its readers
        self._weights(block)
        self._over_keys(chain.top, block)
        scores = self._scores(block)
        self._turned(block)
        done = (*chain.names, scores, f"{chain.total.name}.local", f"{chain.top.name}.local")
        return self.extension(*dict.fromkeys(done))

    # (query tiles of a block, queries of a tile, vectors of channels, keys of a tile)

    def _options(self) -> tuple[Option, ...]:
        registers, lanes = self.target.sum_registers, self.lanes
        width = self.chain.out.op.axes[-1].extent
        queries = self.chain.turned.op.axes[-1].extent
        keys = self.chain.weights.op.axes[-2].extent
        out = []
        for vectors in BLOCKS:
            if vectors > 1 and (vectors - 1) * lanes >= queries:
                continue
            most = max(k for k in range(1, registers) if k * vectors + vectors + 1 <= registers)
            for columns in range(1, min(4, ceil(width / lanes)) + 1):
                for rows in (d for d in range(2, lanes * vectors + 1) if lanes * vectors % d == 0):
                    if rows * columns + columns + 1 > registers:
                        continue
                    for per_tile in dict.fromkeys(min(k, keys) for k in (most, most // 2)):
                        out.append((lanes * vectors // rows, rows, columns, max(1, per_tile)))
        return tuple(out)

    def _quality(self, option: Option) -> float:
        """The approximate share of peak, by FMAs compared with loads and loops, tails, caches, and blocks for
        all cores."""
        tiles, rows, columns, keys = option
        cpu, lanes, vectors = cpu_of(self.target), self.lanes, tiles * rows // self.lanes
        queries = self.chain.turned.op.axes[-1].extent
        width = self.chain.out.op.axes[-1].extent
        total = self.chain.weights.op.axes[-2].extent

        def speed(m: int, n: int) -> float:
            return m * n / (max(m * n, m + n, cpu.accumulators) + cpu.tile_step)

        padded = ceil(queries / (tiles * rows)) * tiles * rows / queries
        ragged = ceil(width / (columns * lanes)) * columns * lanes / width
        short = ceil(total / keys) * keys / total
        outer = 1
        for a in self.chain.mixed.op.axes[:-2]:
            outer *= a.extent
        blocks = outer * ceil(queries / (tiles * rows))
        idle = 1.0 if blocks >= CORES * self.target.num_cores or self.target.num_cores == 1 else 0.8
        kept = 4 * tiles * rows * (total + self.chain.scores.op.reduce_axes[0].extent)
        near, far = (*self.target.cache_bytes, 1 << 15, 1 << 20)[:2]
        if kept > cpu.near_scores * near:
            idle *= cpu.from_l2 if kept <= cpu.l2_share * far else cpu.beyond_l2
        return idle / (padded * (ragged / speed(rows, columns) + short / speed(keys, vectors)))

    def _out(self) -> tuple[str, str]:
        """Makes blocks and tiles of the result. Returns the loop of a block and the loop around a tile."""
        chain, name = self.chain, self.chain.out.name
        *outer, last = [a.name for a in chain.out.op.axes]
        outer.remove(chain.rows)
        q = chain.rows
        self.write(
            SplitStep(name, q, (Ref(self.block, 0), Ref(self.block, 1))),
            SplitStep(name, last, (Ref(self.block, 2), self.lanes)),
            Reorder(name, (*outer, f"{q}.0", f"{q}.1", f"{last}.0", f"{q}.2", f"{last}.1", f"{last}.2")),
        )
        block = self.fuse(name, (*outer, f"{q}.0"))
        self.write(*in_vectors(name, f"{q}.2", f"{last}.1", f"{last}.2"), Parallel(name, block))
        return block, f"{last}.0"

    def _mixed(self, tile: str) -> None:
        op = self.chain.mixed.op
        *outer, q, c = [a.name for a in op.axes]
        self._register_tile(op, (*outer, q), c)
        self.write(
            Pragma(op.name, f"{op.reduce_axes[0].name}.0", "skip_zeros", "2"),
            ComputeAt(op.name, self.chain.out.name, tile),
        )

    def _scores(self, block: str) -> str:
        """Makes tiles of keys × all queries of the block. Returns the name of the stage that accumulates."""
        chain = self.chain
        inner = chain.scores.op
        host, name, first = host_and_anchor(chain.masked, inner.name)
        self.write(*first)
        *outer, key, q = [a.name for a in (inner if chain.masked is None else chain.masked.op).axes]
        self.write(
            SplitStep(host, key, (Ref(self.block, 3),)),
            SplitStep(host, q, (self.lanes,)),
            Reorder(host, (*outer, f"{key}.0", f"{key}.1", f"{q}.0", f"{q}.1")),
            *in_vectors(host, f"{key}.1", f"{q}.0", f"{q}.1"),
            Pragma(host, f"{key}.0", "skip_unread", "1"),
            ComputeAt(host, chain.out.name, block),
        )
        *spatial, last = [a.name for a in inner.axes]
        self._register_tile(inner, tuple(spatial), last, name)
        self.write(ComputeAt(name, host, f"{key}.0"))
        return name

    def _register_tile(self, op: StageOp, spatial: tuple[str, ...], last: str, name: str = "") -> None:
        """Puts the reduction outside, and unrolls and vectorizes all other loops, so that accumulators are in
        registers."""
        name = name or op.name
        (k,) = op.reduce_axes
        hole = f"{op.name}/unroll"
        options = tuple(d for d in (1, 2, 4) if k.extent % d == 0)
        self.hole(hole, singles(options), (1,))
        self.write(
            SplitStep(name, k.name, (Ref(hole),)),
            SplitStep(name, last, (self.lanes,)),
            Reorder(name, (f"{k.name}.0", f"{k.name}.1", *spatial, f"{last}.0", f"{last}.1")),
            *in_vectors(name, f"{k.name}.1", *spatial, f"{last}.0", f"{last}.1"),
        )

    def _over_keys(self, stage: Stage, block: str) -> None:
        """Computes a maximum or sum over keys in registers, for all queries of the block at once."""
        name, near = stage.name, f"{stage.name}.local"
        *outer, q = [a.name for a in stage.op.axes]
        (k,) = stage.op.reduce_axes
        self.write(
            CacheWrite(name, "local"),
            SplitStep(name, q, (self.lanes,)),
            *in_vectors(name, f"{q}.0", f"{q}.1"),
            ComputeAt(name, self.chain.out.name, block),
            SplitStep(near, q, (self.lanes,)),
            Reorder(near, (k.name, *outer, f"{q}.0", f"{q}.1")),
            *in_vectors(near, *outer, f"{q}.0", f"{q}.1"),
            Pragma(near, k.name, "skip_zeros", "2"),
            ComputeAt(near, name, outer[-1]) if outer else ComputeAt(near, self.chain.out.name, block),
        )

    def _weights(self, block: str) -> None:
        name = self.chain.weights.name
        *_, key, q = [a.name for a in self.chain.weights.op.axes]
        hole = f"{name}/unroll"
        self.hole(hole, singles((1, 2, 4)), (2,))
        self.write(
            SplitStep(name, key, (Ref(hole),)),
            SplitStep(name, q, (self.lanes,)),
            *in_vectors(name, f"{key}.1", f"{q}.0", f"{q}.1"),
            Pragma(name, f"{key}.0", "skip_unread", "1"),
            ComputeAt(name, self.chain.out.name, block),
        )

    def _turned(self, block: str) -> None:
        name = self.chain.turned.name
        q = self.chain.turned.op.axes[-1].name
        self.write(
            SplitStep(name, q, (self.lanes,)),
            Vectorize(name, f"{q}.1"),
            ComputeAt(name, self.chain.out.name, block),
        )


__all__ = ["Chain", "attention", "find_chain"]
