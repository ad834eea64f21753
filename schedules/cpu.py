"""A processor as a record: every number of schedules and of the prior that depends on the processor.

    cpu_of(parse("llvm -mcpu=znver5")).region        cycles that starting a team takes there
    register(replace(ZEN5, name="zen6", …))          a record from outside, as does an entry point

The default values of the class are those of Zen 4, on which most were measured; other records give only the
values that differ. A comment at each value says what was measured, on which processor, and when; a value
marked *chosen* was not measured. A processor without a record takes the nearest one by `distance`.
`autotensor doctor --characterise` measures a machine and prints its record. Numbers that do not depend on the
processor (shapes on offer, settings of the search, rounding of sums, limits of GPUs) stand where they are
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log2

from autotensor.base.doors import Door
from autotensor.base.errors import TargetError
from autotensor.base.target import Target, spreads_loads

# for all processors with a record: the bytes of a cache line, and the bytes after which addresses fall into
# the same set of L1, because L1 is indexed within a page
LINE, PAGE = 64, 4096
EXTREME = 2.0  # operations of the least or greatest of two floats, in a chain of them: NaN is kept
APART = 3.0  # vectors loaded for one whose lanes are two apart (chosen, 2026-11)
WIDTHS = (16, 32, 64, 128, 256)  # bytes that vector registers can have


@dataclass(frozen=True, slots=True)
class Tiles:
    """The cost of AMX's instructions, in cycles. Source: Intel's optimization reference manual."""

    product: float = 16.0  # a product of two tiles of 16 rows (5.4 to 6 ns; Emerald Rapids, 2026-11)
    load: float = 8.0  # loading a tile from L1 (Intel's manual; chosen, 2026-11)
    from_l2: float = 21.0  # loading a tile from L2 (140 GB/s; Emerald Rapids, 2026-11)
    # from a product's start until its sums are there (one chain 16 ns; Emerald Rapids, 2026-11)
    latency: float = 52.0
    least_rows: float = 9.0  # rows of a tile; a tile with fewer takes as long (Emerald Rapids, 2026-11)


@dataclass(frozen=True, slots=True)
class Winograd:
    """The cost of Winograd's convolution: 32 registers of 512 bits, one whole one multiplied a cycle."""

    vectors: int = 1  # vectors that a core multiplies in a cycle; `sure` was fitted for one (Zen 4, 2026-11)
    # FMAs for a scalar or a vector of a step, which only large tiles hide (Zen 4, 2026-11)
    operand: float = 0.0
    scale: float = 1.0  # so that the best tile comes to the 0.9 of peak that was seen (Zen 4, 2026-11)
    # share of L2 for a block's transformed inputs; products and weights need the rest (28x28x128 on one core
    # takes 0.63 ms instead of 0.55 with a block that is far; Zen 4, 2026-11)
    l2_share: float = 0.15
    far: float = 0.85  # speed with a larger share of L2 (Zen 4, 2026-11)
    # how transformed inputs as large as L2 slow a block, growing with them (Zen 4, 2026-11)
    crowd: float = 0.0
    # share of the last cache that weights may take and still be there for the next block (Zen 4, 2026-11)
    last_share: float = inf
    line: float = 120.0  # cycles to fetch 64 bytes that another core has written (Zen 4, 2026-11)
    # bytes of weights a cycle from memory, where they are in a model; to all cores (Zen 4, 2026-11)
    memory: float = 9.0
    alone: float = inf  # bytes a cycle to one core, however many cores share (unseen on Zen 4, 2026-11)
    again: float = inf  # bytes a cycle to one core of weights that L2 cannot keep (unseen on Zen 4, 2026-11)
    # how many times as fast as direct kernels Winograd's must seem, to be taken without measuring (Zen 4,
    # 2026-11)
    sure: float = 1.25
    stream: float = 0.75  # tiles that a block's reading of the weights costs (Zen 4, 2026-11)
    moves: float = 1.0  # FMAs' time of an addition of a transform, with its loads and stores (Zen 4, 2026-11)
    # by columns: what stream is of a panel's weights, and the slope with which transformed inputs slow the
    # products by their multiple of L2 (with more taps than a plane's, unmeasured, as by tiles). None: all as
    # by tiles (Zen 4, 2026-11)
    panel: float | None = None
    passing: float = 0.0  # the slope (Zen 4, 2026-11)
    # cycles that cores wait for one another where they divide columns, besides the second region itself;
    # the two come to the 8,000 with which the costs here were fitted (Zen 4, 2026-11)
    wait: float = 5_500
    step: float = 1.5  # FMAs that a step of a product's reduction costs besides its own (Zen 4, 2026-11)


@dataclass(frozen=True, slots=True)
class Cpu:
    """One class of processors. Cycles are of one core; shares and times are plain numbers."""

    # -- what it is: by this the nearest record is found
    name: str = "zen4"  # the record's name
    archs: tuple[str, ...] = ("znver4",)  # LLVM's names of processors that it is for, with vectors as wide
    vector_bytes: int = 64  # the width of a register (Zen 4, 2026-11)
    vector_registers: int = 32  # (Zen 4, 2026-11)
    multiplies: float = 1.0  # FMAs of whole registers a cycle; two halves count as one (Zen 4, 2026-11)
    # data caches, nearest first (Zen 4, 2026-11)
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20, 32 << 20)

    # -- what the prior guesses where nothing was calibrated
    clock: float = 3.6e9  # cycles a second (Zen 4, 2026-11)
    bandwidths: tuple[float, ...] = (100e9, 60e9, 20e9)  # B/s of a core from L2, L3, memory (chosen, 2026-11)
    memory: float = 30e9  # B/s from memory of all cores together (chosen, 2026-11)

    # -- latencies and rates of a core
    latency: int = 4  # cycles from one FMA, or addition, to the next of the same accumulator (Zen 4, 2026-11)
    # accumulators that keep a core busy: latency times units; others have two units (Zen 4, 2026-11)
    accumulators: int = 8
    l2_rate: float = 24.0  # bytes a cycle from L2 (Zen 4, 2026-11)
    l3_rate: float = 12.0  # bytes a cycle from L3, or memory (Zen 4, 2026-11)

    # -- teams
    # cycles to start a team and to meet again. 0.7 us: libgomp's region of two threads. Our own pool's takes
    # less, but what one core wrote the other has to fetch: small_cnn, whose kernels have up to 4,600 cycles,
    # takes both cores longer than one. Alone, with the pool, sums of 8192 elements take two threads 0.6 us
    # after 0.9, a 3x3 of 4x4x32 1.1 after 1.8. The calibration measures regions, too, but schedules do not
    # depend on it: a workload has the same default on all machines of a kind (Zen 4, 3.5 GHz, 2026-11)
    region: int = 2_500
    # cycles to fetch the sums that another core has written and to add them: 0.7 us as well. Products of 1 to
    # 6 rows and 32 or 64 columns in two parts take longer than whole ones up to 6,000 cycles, less from
    # 11,000 (1.1 to 1.2 x as fast; at 22,000 1.5 x); sums of numbers likewise (libgomp, Zen 4, 2026-11)
    join: int = 2_500
    # share of time lost when cores divide columns: each reads rows others wrote (Zen 4, 2026-11)
    apart: float = 0.02
    scattered: float = 0.97  # speed where neither rows nor columns of tiles divide evenly (chosen, 2026-11)
    called: float = 8.0  # operations that a function of a number (tanh) counts for (chosen, 2026-11)

    # cycles to fetch a line that another core has written, while others are on their way; fitted to products
    # in networks, together with the stages in front of them and behind them (Xeon, 2026-11)
    line: float = 20.0

    # -- caches
    ways: int = 8  # lines of a set of L1 (Zen 4, 2026-11)
    free_ways: int = 6  # ways of L1 for rows; the others are for weights (Zen 4, 2026-11)
    l2_share: float = 0.5  # share of L2 that a panel of weights, or rows, may take and stay (chosen, 2026-11)
    # share of each core's L2: if a result takes more, it has left L2 when it is read (Xeon, 2026-11)
    large: float = 0.25
    # share of L2 for the sums of a block, which every cut loads and stores (Zen 4, 2026-11)
    sums_share: float = 0.25
    # share of the last cache: smaller operands are not worth a cut (chosen, 2026-11)
    last_share: float = 1 / 32
    # times L2: an operand larger than that is worth copying, if used by enough rows (chosen, 2026-11)
    far: int = 2
    near_sums: int = 8 << 10  # bytes of sums that stay in L1 while rows pass by (chosen, 2026-11)
    # terms of a sum by itself up to which short rows lie across lanes; more are as fast in lanes (Zen 4,
    # 2026-11)
    short_sum: int = 7
    near_rows: int = 16 << 10  # bytes that a block of rows may take: half of L1 (chosen, 2026-11)
    # the same where all rows come from L2, or nearly: layer norms and softmax of rows of 192 to 1024 elements
    # are 1.02 to 1.13 x as fast; from the last cache and memory 0.6 to 1.0 x (Zen 4, 2026-11)
    near_rows_of_l2: int = 48 << 10
    rows_of_l2: float = 2.0  # times L2: as large may be what all rows read and write (Zen 4, 2026-11)
    # share of time lost when a block's rows come from beyond L2 for every column (Zen 4, 2026-11)
    spill: float = 0.05
    # times that a row of an operand must be used to repay packing it in every call (chosen, 2026-11)
    least_reuse: int = 8
    # rows that must use a panel to repay its copy (24 us for 1 MB from L3; Zen 4, 2026-11)
    copy_rows: int = 96
    # tiles of rows that do not repay it, where a panel's lines compete for one set of a cache or lie on many
    # pages; more tiles do (64 x 64 x 8192 1.2 x as fast by copies, Zen 5, 2026-11; 80 x 1024 x 1024 2.5 x,
    # 512 x 512 x 512 1.15 x; 24 x 512 x 512, which are four tiles, 0.93 x, Zen 3, 2026-11)
    crowded_tiles: int = 4
    # share of L2 that such a panel may take: 16 x 1024 x 8192 0.65 x (Zen 3, 2026-11)
    crowded_share: float = 0.25
    near_pages: int = 64  # pages whose addresses are in a core's first table (TLB) (Zen 3, 2026-11)
    near_scores: float = 7 / 8  # share of L1 for the scores of a block of attention (chosen, 2026-11)
    from_l2: float = 0.92  # speed of attention whose scores leave L1 (64 queries x 128 keys; Zen 4, 2026-11)
    beyond_l2: float = 0.8  # speed of attention whose scores take more than half of L2 (chosen, 2026-11)

    # -- register tiles of products
    tight: float = 0.97  # speed of a tile that leaves less than two registers to scalars (chosen, 2026-11)
    # speed of a tile that leaves no registers to the operations inside a term (L1 distances in 29 rows of a
    # vector against 24; Zen 4, 2026-11)
    spilled: float = 0.93
    # operations that a scalar costs in a tile of one vector, where an operation fetches it (L1 distances in 9
    # rows of two vectors 1.12 x as fast as in 24 of one; Zen 4, 2026-11)
    folded: float = 0.35
    # cycles for spreading a scalar over a register where loads do not: a multiply-add in tiles of 1, 2, 3
    # vectors takes 1.6, 1.3, 1.2 times as long as one alone (x86-64-v2 on Zen 4, 2026-11)
    spread: float = 0.6
    least_tile: int = 4  # accumulators: fewer wait for their own sums all the time (chosen, 2026-11)
    # cycles per reduction step besides FMAs and loads; favours larger tiles (Zen 4, 2026-11)
    tile_step: float = 1.5
    # cycles for a vector that comes from the last cache, at its bandwidth (Zen 4, 2026-11)
    tile_stream: float = 2.5
    # cycles that a row costs more if it competes for its set of L1; they rise with the square when L2 is
    # crowded too (Zen 4, 2026-11)
    tile_crowded: float = 0.8
    # share of L2 for a panel besides its rows: 3072 steps of 96 columns lose 2 % to 48 (Zen 4, 2026-11)
    panel: float = 0.75
    # how much of a register less half ones must leave empty to be taken: a processor that runs an operation
    # on a whole register in two halves runs one on half of it in half the time. Whole ones serve more columns
    # at a time (24 columns 1.3 x, 8 columns 1.8 x as fast; Zen 4, 2026-11). inf: never
    halves: float = 1.15
    # steps of a long reduction that are written out: it hides the loop's own (Zen 4, 2026-11)
    written: int = 1
    # extent of the last reduction up to which it is written out though the loop around it is cut: it is left
    # in irregular steps, which are mispredicted (Zen 3, 2026-11)
    short_cut: int = 0
    # FMAs that a vector from L2 costs besides those that it is for (none seen, Zen 4, 2026-11)
    panel_wait: float = 0.0
    # steps of a reduction up to which large results should rather be written in wide tiles: a row of a tile
    # then costs `run` FMAs besides those that it is for. The wider, the fewer runs of lines are written side
    # by side (2048 x 2048 results of 16 steps: 6 x 4 tiles, their panels copied, 1.05 to 1.3 x as fast as 14
    # x 2, by where the arrays lie; 3136 x 256 of 64 steps 1.01 x; Zen 5, 2026-11)
    writes: int = 32
    run: float = 0.25  # see `writes` (Zen 5, 2026-11)
    # speed of a tile of which sums leave registers; less than 28 in one have (Xeon, 2026-11)
    pushed_out: float = 0.96

    # -- dot instructions: beginnings of their names, and operations a second over those of FMAs in float32,
    # in whole registers of both
    dots: tuple[tuple[str, float], ...] = (("vpdpb", 4.0), ("vdpbf16ps", 2.0))  # (chosen, 2026-11)

    # whether sums of bytes' products should rather leave registers to the scales behind them. 7 x 2 sums
    # are as fast as 14 x 2 in 3x3 convolutions of 14 to 56 pixels and 1.09 x in one of 7, in 1x1 of 64 to
    # 1024 channels 1.03 to 1.06 x: behind them fewer values leave registers, and the next tile's products
    # begin meanwhile (Zen 4, 2026-11)
    halves_full_tiles: bool = True

    # -- products: cycles for a vector of a panel, besides those of its products
    stream_cost: float = 0.5  # to bring it from the last cache (Zen 4, 2026-11)
    memory_cost: float = 4.0  # to bring it from memory (Zen 4, 2026-11)
    copy_cost: float = 2.0  # to copy it (Zen 4, 2026-11)
    # columns of tiles that copying the padding of a block's rows takes (Zen 4, 2026-11)
    pad_cost: float = 0.05
    shallow: int = 64  # steps below which storing a result takes as long as computing it (Xeon, 2026-11)

    # rows of a tile that adds up sums of groups: beyond 9 each takes longer, with one vector as with two. 64
    # rows of 1024 x 1024 in 4 bits take 1.31 ms by tiles of 8 x 3 vectors, 1.45 of 9 x 2, 1.79 of 11 x 2,
    # 2.49 of 13 x 2; 13 rows 0.27 and 0.49 (Zen 4, 2026-11)
    nested_rows: int = 8
    # bytes of a panel of one vector's columns, from which several side by side are read faster than one of a
    # tile's width. GB/s of one row with weights of 4 bits: 1024 x 5632 (8 KiB) by four vectors 23.4, side by
    # side 19.7; 2048 x 2816 (16 KiB) 22.3 and 21.4; of 8 bits, 1024 x 5632 (32 KiB) 22.5 and 22.2, 2816 x
    # 1024 (88 KiB) 22.8 and 24.4 (Zen 4, 2026-11)
    side_by_side: int = 1 << 14

    # -- convolutions
    conv_step: float = 0.25  # cycles per reduction step besides FMAs and loads (Zen 4, 2026-11)
    # cycles per broadcast of an element, as operands of FMAs take them (Zen 4, 2026-11)
    conv_row: float = 1.0
    conv_crowded: float = 1.12  # slow-down beyond `free_ways` (5x5 rows 2 KiB apart: 1.15; Zen 4, 2026-11)
    # times L2: more data and results than that come from and go to memory; share of L2 up to which weights
    # stay meanwhile (chosen, 2026-11)
    streamed: int = 4
    stay: float = 0.25  # see `streamed` (chosen, 2026-11)
    # slow-down where rows of a large result are not written whole (1x1x1, 64 to 64 channels: 1.3; Zen 4,
    # 2026-11)
    partly: float = 1.1
    ragged: float = 1.01  # least gain of a tile that needs another kernel for the tail (chosen, 2026-11)
    # least gain of a tile of two row axes: its windows are written out (chosen, 2026-11)
    more_code: float = 1.02

    # -- windows: depthwise convolution, pooling
    # share of the registers for a tile, a row of its inputs and a row of weights (Zen 4, 2026-11)
    window_share: float = 0.65
    # this share where lines of a tile push each other out of L1 (Zen 4, 2026-11)
    window_crowded: float = 0.35
    # vectors that a tile may hold; four are left to other values. Larger tiles had 5 to
    # 350 moves to or from the stack and took 0.98 to 1.1 x the time of the best without (depthwise 3x3,
    # 3x3/2, 5x5, pooling 3x3/2; Zen 4, 2026-11)
    window_held: float = 28.0
    window_spill: float = 4.0  # cycles for each vector beyond (Zen 4, 2026-11)
    window_load: float = 0.25  # cycles of a load besides operations (Zen 4, 2026-11)
    window_tile: float = 6.0  # cycles of a tile's loop, branches and drained accumulators (Zen 4, 2026-11)
    # Lines of inputs that a tile of windows two or more apart may read for each vector of channels: they are
    # read alternately, and memory is followed the worse, the more there are. 2 x 2 sums have 25, 3 x 3 49:
    # pooling 3x3/2 of 112x112x64 is 1.24 x as fast, 56x56x64 1.12 x, 28x28x480 1.08 x; depthwise 3x3/2 1.07
    # to 0.94 x. Windows side by side share most of theirs: 3 x 4 remain 1.1 x as fast as 2 x 2 (pooling 3x3
    # of 28x28x192; Zen 4, two cores, 2026-11)
    window_lines: int = 25
    window_apart: float = 0.5  # cycles for each line beyond (Zen 4, two cores, 2026-11)
    # vectors of a channel block: rows of longer ones have left the cache when the next row comes (chosen,
    # 2026-11)
    window_longest: int = 12

    # -- stencils
    # rows written out, whose neighbours share loads (27 points of 130 x 130 x 130 1.65 x as fast as one row,
    # a star of radius 4 1.3 x; Zen 5, 2026-11)
    stencil_rows: int = 4
    # loads of a row that neighbours must save where rows do not begin on a line, so that writing several at
    # once costs more. None here: 5 points of 700 or 1300 columns four rows 1.25 x as fast as one (Zen 4,
    # 2026-11)
    stencil_ragged: float = 0.0
    # the same where rows are nearly a whole number of pages apart, too: 5 points of 1020 columns in a tile,
    # two rows 0.91 x as fast as one, four 0.8 x (Zen 4, 2026-11)
    stencil_paged: float = 3.0
    # values in common, for each register, up to which rows share what they load: of 27 points, four rows have
    # 36 and are 0.9 x as fast as two, which have 18 (Zen 4, 2026-11)
    stencil_held: float = 1.0
    # lines that rows a whole number of pages apart may have in one set of L1, times its ways: others come
    # from L2 meanwhile. hotspot of 1024 columns has 14 with four rows, 1.15 x as fast as one; sums down
    # columns of two to three arrays 10 to 14 with two, 1.05 to 1.3 x (Zen 4, 2026-11)
    stencil_ways: float = 2.0

    # Operations take a time, and moving bytes takes a time: the share of the shorter one that is felt where
    # stages slide along whole rows. With it strips come first in eleven pipelines, which are 0.99 to 1.2 x as
    # fast, 1.07 in the mean; with 0.5 one is 0.89 x as fast (Zen 4, 2026-11)
    strips_felt: float = 0.7

    # -- the prior
    prior_fine: float = 5e-6  # seconds of pieces that overlap with others around them (chosen, 2026-11)
    prior_step: float = 0.5  # cycles per innermost iteration besides FMAs and loads (Zen 4, 2026-11)
    # cycles of a load besides FMAs: two ports; broadcasts fold into the FMA (Zen 4, 2026-11)
    prior_load: float = 0.6
    # slow-down of a tile that needs more registers than there are (chosen, 2026-11)
    prior_spilled: float = 2.5
    # FMAs that the divider takes as long as for a division; a square root counts as one, which takes 10
    prior_division: float = 6.0  # (Zen 4, 2026-11)
    # bytes from beyond L2 that could have come while fetching ahead begins anew: with 256 to 512 the prior is
    # right about most of 93 programs (Xeon, 2026-11)
    prior_start: float = 512.0
    prior_streams: int = 8  # arrays that are fetched ahead at once (Xeon, 2026-11)
    prior_overlap: float = 0.3  # share of the other parts' times that is still felt (chosen, 2026-11)
    # cycles of a scalar that must come from L2 because its set of L1 is too full (Zen 4, 2026-11)
    prior_crowded: float = 4.0
    # the same for a vector of a window: others are on their way meanwhile (Zen 4, 2026-11)
    prior_crowded_window: float = 1.0
    # times the ways more lines than ways, and every scalar must (Zen 4, 2026-11)
    prior_crowded_lines: float = 2.4

    tiles: Tiles = Tiles()  # where there are some (Emerald Rapids, 2026-11)
    winograd: Winograd = Winograd()  # see there (Zen 4, 2026-11)

    def __post_init__(self) -> None:
        if self.vector_bytes not in WIDTHS:
            raise TargetError(
                f"processor {self.name!r} has vectors of {self.vector_bytes} bytes.",
                fix=f"A register has {', '.join(map(str, WIDTHS))}.",
            )


ZEN4 = Cpu()
# it multiplies two whole registers a cycle, like all processors that do not halve them
XEON = replace(
    ZEN4,
    name="xeon",  # Xeon Sapphire Rapids, a virtual machine
    # processors of x86-64-v4 that are not AMD's; x86-64-v4 itself stands for any of them
    archs=(
        *("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client"),
        *("icelake-server", "tigerlake", "rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids"),
    ),
    multiplies=2.0,  # (Xeon, 2026-11)
    cache_bytes=(48 << 10, 2 << 20),  # the third is as large as the model has cores (Xeon, 2026-11)
    halves=inf,  # (Xeon, 2026-11)
    halves_full_tiles=False,  # (chosen, 2026-11)
    # with 5 points four rows take 1.4 x the time of one, with 27 points 0.6 (Xeon, 2026-11)
    stencil_ragged=3.0,
    stencil_held=1.25,  # 27 points in 16 registers: four rows take 1.25 x the time of two (Zen 3, 2026-11)
    stencil_ways=1.0,  # (Zen 3, 2026-11)
    strips_felt=1.0,  # (chosen, 2026-11)
    folded=0.0,  # (chosen, 2026-11)
    written=4,  # else the loop's own instructions and its end cost 3 to 15 % (Sapphire Rapids, 2026-11)
    short_cut=8,  # as far as reductions are written out (chosen, 2026-11)
    # 14 x 2 tiles in place of 5 x 5 make 49 rows of 960 steps 1.06 x as fast, 8 x 3 in place of 4 x 6 128
    # rows of 3072 steps 1.12 x (Sapphire Rapids, 2026-11)
    panel_wait=0.25,
    prior_division=8.0,  # (chosen, 2026-11)
    # one core 806, 96 and 253 G operations/s where FMAs do 214; vdpbf16ps takes two cycles (Emerald Rapids,
    # 2026-11); tiles by Intel's manual, 2048 and 1024 a cycle
    dots=(("vpdpb", 3.8), ("vpmaddwd", 1.2), ("vdpbf16ps", 0.45), ("tdpbusd", 32.0), ("tdpbf16ps", 16.0)),
)
# Mean loss of Winograd's choice against the best option that was measured, weights warm, seven layers of 56,
# 28, 14 and 7 pixels and 256 to 512 channels on 1 and 2 cores: 4 % (10 % while blocks by columns were counted
# like blocks by tiles: 28x28x512 on one core 8.1, now 6.1 ms, the best 5.9). Data from L2 and memory
# costs twice as many products as on Zen 4. Direct kernels take 7 % more than their count, so that 1.03 of
# `sure` stands for 1.1 (Zen 5, 2026-11)
ZEN5 = replace(
    XEON,
    name="zen5",  # LLVM's name also stands for laptop parts that halve registers
    archs=("znver5",),  # (Zen 5, 2026-11)
    cache_bytes=(48 << 10, 1 << 20, 32 << 20),  # (Zen 5, 2026-11)
    dots=(("vpdpb", 4.0), ("vdpbf16ps", 1.9)),  # (Zen 5, 2026-11)
    # fitted as said above (Zen 5, 2026-11)
    winograd=Winograd(
        2, 0.0, 1.09, l2_share=0.65, far=0.84, crowd=0.19, last_share=0.5, line=19.0, memory=17.0,
        alone=10.5, again=17.0, sure=1.03, stream=1.6, moves=2.6, panel=3.2, passing=0.03,
    ),
)  # fmt: skip
ZEN3 = replace(
    XEON,
    name="zen3",  # for all processors with AVX2
    archs=("x86-64-v3", "haswell", "skylake", "znver1", "znver2", "znver3"),  # (Zen 3, 2026-11)
    vector_bytes=32,  # (Zen 3, 2026-11)
    dots=(("vpdpb", 4.0), ("vpmaddwd", 1.3)),  # (chosen, 2026-11)
    vector_registers=16,  # (Zen 3, 2026-11)
    cache_bytes=(32 << 10, 512 << 10, 32 << 20),  # (Zen 3, 2026-11)
    # a fifth more than there are: what is put aside would else be loaded more often (5x5/2: 2 x 2 sums with
    # 44 moves 1.04 x as fast as 1 x 4 with none), not half as many more (3x3: 3 x 4 with 228 in 1.25 x the
    # time of 3 x 2; AVX2 on Zen 4, 2026-11)
    window_held=1.2 * 16,
    # mean loss of the choice over 4 layers, 1 and 2 cores, 5 % (Zen 3, 2026-11)
    winograd=Winograd(2, 1.0, 1.55, l2_share=inf, far=1.0, crowd=0.6, last_share=1 / 8, line=20.0),
)
V2 = replace(
    ZEN3,
    name="x86-64-v2",  # for all processors without AVX; nothing was measured on one (chosen, 2026-11)
    archs=("x86-64", "x86-64-v2"),
    vector_bytes=16,  # (by definition)
    cache_bytes=(32 << 10, 1 << 20),  # (chosen, 2026-11)
)
NEOVERSE = replace(
    XEON,
    name="neoverse",  # for all of aarch64; nothing was measured on one (chosen, 2026-11)
    archs=("neoverse-n1", "neoverse-v1", "neoverse-v2"),
    vector_bytes=16,  # (by definition)
    dots=(*((name, 4.0) for name in ("sdot", "udot", "usdot", "sudot")), ("bfdot", 2.0)),  # (chosen, 2026-11)
    cache_bytes=(64 << 10, 1 << 20),  # (chosen, 2026-11)
)
OURS = (ZEN4, XEON, ZEN5, ZEN3, V2, NEOVERSE)
RECORDS = list(OURS)  # records from outside come first
CPUS: Door[Cpu] = Door(  # entry points are named as LLVM names their processors
    "record of a processor", "autotensor.cpus", lambda thing: isinstance(thing, Cpu), error=TargetError
)
# how much a doubling of vector width, registers, FMAs a cycle or a cache counts: as much as code differs
WEIGHTS = (4.0, 2.0, 2.0, 1.0)


def register(cpu: Cpu) -> Cpu:
    """Registers a record, which replaces ours for its processors; call it before schedules are made.

    Raises TargetError for an object that is not a record, when another one has its name, when one from
    outside is for the same processor, and when a processor of ours has other vectors.
    """
    if not isinstance(cpu, Cpu):
        raise TargetError(f"{cpu!r} is not a record of a processor.", fix="Make one: replace(ZEN4, name=…).")
    if cpu in RECORDS:
        return cpu
    if any(c.name == cpu.name for c in RECORDS):
        raise TargetError(f"processor {cpu.name!r} is registered twice.", fix="Take another name.")
    for arch in cpu.archs:
        check_arch(cpu, arch, RECORDS)
    RECORDS.insert(0, cpu)
    cpu_of.cache_clear()
    return cpu


def check_arch(cpu: Cpu, arch: str, others: Sequence[Cpu]) -> None:
    """Raises TargetError unless a record may be for a processor that others may be for, too."""
    for other in others:
        if arch not in other.archs:
            continue
        if other.vector_bytes != cpu.vector_bytes:
            raise TargetError(
                f"processor {cpu.name!r} has vectors of {cpu.vector_bytes} bytes, but {arch} has "
                f"{other.vector_bytes}.",
                fix=f"Leave {arch} out of its archs: narrower vectors of it find records by their features.",
            )
        if other not in OURS or cpu in OURS:
            raise TargetError(
                f"processors {cpu.name!r} and {other.name!r} are both for {arch}.", fix="Leave it out of one."
            )


@lru_cache(maxsize=64)
def cpu_of(target: Target, multiplies: float | None = None) -> Cpu:
    """The record of the target's processor: a registered one, one from an entry point, or the nearest.

    multiplies: FMAs of whole registers a cycle as calibrated, which no target says; None: two.
    """
    named = [c for c in RECORDS if target.arch in c.archs]
    if not named and target.arch and (brought := CPUS.find(target.arch)) is not None:
        if target.arch not in brought.archs:
            raise TargetError(
                f"entry point {target.arch!r} of {CPUS.group} gives {brought.name!r}, which is for "
                f"{', '.join(brought.archs) or 'no processor by name'}.",
                fix=f"Add {target.arch} to its archs.",
            )
        named = [register(brought)]
    fitting = [c for c in named if c.vector_bytes == target.vector_bytes]
    return fitting[0] if fitting else min(RECORDS, key=lambda c: distance(c, target, multiplies or 2.0))


def spread_cycles(target: Target) -> float:
    """Cycles besides a load until a scalar fills a register: none where loads fill it."""
    return 0.0 if spreads_loads(target) else cpu_of(target).spread


def distance(cpu: Cpu, target: Target, multiplies: float = 2.0) -> float:
    """How unlike a record a processor is: doublings of its features, by WEIGHTS; 0.0 for the same."""
    theirs = (cpu.vector_bytes, cpu.vector_registers, cpu.multiplies, *cpu.cache_bytes)
    ours = (target.vector_bytes, target.vector_registers, multiplies, *target.cache_bytes)
    weights = (*WEIGHTS, *WEIGHTS[3:] * len(cpu.cache_bytes))
    return sum(w * abs(log2(a / b)) for w, a, b in zip(weights, theirs, ours, strict=False))
