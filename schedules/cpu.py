"""A processor as a record: every number of schedules and of the prior that depends on the processor.

    cpu_of(parse("llvm -mcpu=znver5")).region        cycles that starting a team takes on a Zen 5
    register(replace(ZEN5, name="zen6", …))          adds a record of another package, as an entry point does

The default values of the class are those of Zen 4, because most values were measured on it; other records
give only the values that differ. A comment at each value says what was measured, on which processor, and
when. A value marked *chosen* was not measured. A processor without a record uses the nearest record by
`distance`. `autotensor doctor --characterise` measures a machine and prints its record. Numbers that do not
depend on the processor (shapes that the search may try, settings of the search, rounding of sums, limits of
GPUs) are in the files that use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log2

from autotensor.base.doors import Door
from autotensor.base.errors import TargetError
from autotensor.base.target import Target, spreads_loads
from schedules.method_costs import TILES, WINOGRAD, Tiles, Winograd

# for all processors with a record: the bytes of a cache line, and the bytes after which addresses fall into
# the same set of L1, because L1 is indexed within a page
LINE, PAGE = 64, 4096
EXTREME = 2.0  # operations of a float minimum or maximum that keeps NaN, in a chain of them
APART = 3.0  # vectors that are loaded for one vector with a stride of two (chosen, 2026-11)
WIDTHS = (16, 32, 64, 128, 256)  # bytes that vector registers can have


@dataclass(frozen=True, slots=True)
class Cpu:
    """One class of processors. Cycles are of one core; shares and times are plain numbers."""

    # -- features, by which the nearest record is found
    name: str = "zen4"  # the record's name
    archs: tuple[str, ...] = ("znver4",)  # LLVM's names of its processors, which have the same vector width
    vector_bytes: int = 64  # the width of a register (Zen 4, 2026-11)
    vector_registers: int = 32  # (Zen 4, 2026-11)
    multiplies: float = 1.0  # FMAs of whole registers per cycle; two halves count as one (Zen 4, 2026-11)
    # data caches, nearest first (Zen 4, 2026-11)
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20, 32 << 20)

    # -- guesses of the prior if nothing was calibrated
    clock: float = 3.6e9  # cycles per second (Zen 4, 2026-11)
    bandwidths: tuple[float, ...] = (100e9, 60e9, 20e9)  # B/s of a core from L2, L3, memory (chosen, 2026-11)
    memory: float = 30e9  # B/s from memory of all cores together (chosen, 2026-11)

    # -- latencies and rates of a core
    latency: int = 4  # cycles from one FMA, or addition, to the next of the same accumulator (Zen 4, 2026-11)
    # accumulators that keep a core busy: latency times units; others have two units (Zen 4, 2026-11)
    accumulators: int = 8
    l2_rate: float = 24.0  # bytes a cycle from L2 (Zen 4, 2026-11)
    l3_rate: float = 12.0  # bytes a cycle from L3, or memory (Zen 4, 2026-11)

    # -- teams
    # Cycles to start a team and to wait for its end: 0.7 us, libgomp's region of two threads. The region of
    # our own pool takes less, but one core must fetch the results that the other core wrote: small_cnn, whose
    # kernels have up to 4,600 cycles, takes longer on two cores than on one. Single kernels with the pool are
    # faster with two threads: sums of 8192 elements take 0.6 us instead of 0.9, a 3x3 of 4x4x32 1.1 instead
    # of 1.8. The calibration measures regions, too, but schedules do not depend on it: a workload has the
    # same default on all machines of a kind (Zen 4, 3.5 GHz, 2026-11)
    region: int = 2_500
    # Cycles to fetch the sums that another core has written and to add them: also 0.7 us. Products of 1 to 6
    # rows and 32 or 64 columns in two parts are slower than whole ones up to 6,000 cycles, and faster from
    # 11,000 (1.1 to 1.2 x as fast; at 22,000 1.5 x); the same holds for sums of numbers (libgomp, Zen 4,
    # 2026-11)
    join: int = 2_500
    # share of time that is lost if cores divide columns, because each reads rows of others (Zen 4, 2026-11)
    apart: float = 0.02
    scattered: float = 0.97  # speed if neither rows nor columns of tiles divide evenly (chosen, 2026-11)
    # masking an operand pays with at least this many terms (40 to 96: 0.9 x, 512: 1.2 x; Zen 4, 2026-11)
    masked_terms: int = 128
    called: float = 8.0  # a call of a function such as tanh counts as these operations (chosen, 2026-11)

    # cycles to fetch a cache line that another core has written, while other lines are being fetched; fitted
    # to products in networks, together with the stages before and after them (Xeon, 2026-11)
    line: float = 20.0

    # -- caches
    ways: int = 8  # lines of a set of L1 (Zen 4, 2026-11)
    free_ways: int = 6  # ways of L1 for rows; the others are for weights (Zen 4, 2026-11)
    l2_share: float = 0.5  # share of L2 that a panel of weights, or rows, may take and stay (chosen, 2026-11)
    # a result that takes more than this share of a core's L2 is no longer in L2 when it is read (Xeon,
    # 2026-11)
    large: float = 0.25
    # share of L2 for the sums of a block, which every cut loads and stores (Zen 4, 2026-11)
    sums_share: float = 0.25
    # operands below this share of the last cache are not worth a cut (chosen, 2026-11)
    last_share: float = 1 / 32
    # operands larger than L2 by this factor are worth copying, if enough rows use them (chosen, 2026-11)
    far: int = 2
    near_sums: int = 8 << 10  # bytes of sums that stay in L1 while rows are read (chosen, 2026-11)
    # for separate sums of at most these terms, each lane has another short row; longer sums are as fast along
    # the row (Zen 4, 2026-11)
    short_sum: int = 7
    near_rows: int = 16 << 10  # most bytes of a block of rows: half of L1 (chosen, 2026-11)
    # the same if all rows come from L2, or nearly all: layer norms and softmax of rows of 192 to 1024
    # elements are 1.02 to 1.13 x as fast; from the last cache and memory 0.6 to 1.0 x (Zen 4, 2026-11)
    near_rows_of_l2: int = 48 << 10
    rows_of_l2: float = 2.0  # `near_rows_of_l2` holds if all rows take at most this many L2s (Zen 4, 2026-11)
    # share of time that is lost if a block's rows come from beyond L2 for every column (Zen 4, 2026-11)
    spill: float = 0.05
    # packing a row of an operand in every call is worth it if the row is used this often (chosen, 2026-11)
    least_reuse: int = 8
    # copying a panel is worth it if this many rows use it (24 us for 1 MB from L3; Zen 4, 2026-11)
    copy_rows: int = 96
    # If a panel's lines compete for one set of a cache, or lie on many pages, a copy is worth it for more
    # tiles of rows than these. With copies, 64 x 64 x 8192 is 1.2 x as fast (Zen 5, 2026-11), 80 x 1024 x
    # 1024 2.5 x and 512 x 512 x 512 1.15 x. 24 x 512 x 512 has only four tiles, and is 0.93 x as fast (Zen 3,
    # 2026-11)
    crowded_tiles: int = 4
    # most of L2 that such a panel may take: 16 x 1024 x 8192 is 0.65 x as fast (Zen 3, 2026-11)
    crowded_share: float = 0.25
    near_pages: int = 64  # pages in a core's first TLB (Zen 3, 2026-11)
    near_scores: float = 7 / 8  # share of L1 for the scores of a block of attention (chosen, 2026-11)
    from_l2: float = 0.92  # speed of attention whose scores leave L1 (64 queries x 128 keys; Zen 4, 2026-11)
    beyond_l2: float = 0.8  # speed of attention whose scores take more than half of L2 (chosen, 2026-11)

    # -- register tiles of products
    tight: float = 0.97  # speed of a tile that leaves less than two registers to scalars (chosen, 2026-11)
    # speed of a tile that leaves no registers to the operations inside a term (L1 distances with 29 rows of a
    # vector compared with 24; Zen 4, 2026-11)
    spilled: float = 0.93
    # cost of a scalar in operations in a tile of one vector, if an operation loads the scalar (L1 distances
    # with 9 rows of two vectors are 1.12 x as fast as with 24 of one; Zen 4, 2026-11)
    folded: float = 0.35
    # cycles for copying a scalar into a whole register, if loads do not do this: a multiply-add in tiles of
    # 1, 2, 3 vectors takes 1.6, 1.3, 1.2 times as long as one alone (x86-64-v2 on Zen 4, 2026-11)
    spread: float = 0.6
    least_tile: int = 4  # least accumulators; fewer always wait for their own sums (chosen, 2026-11)
    # cycles per reduction step besides FMAs and loads; favours larger tiles (Zen 4, 2026-11)
    tile_step: float = 1.5
    # cycles for a vector that comes from the last cache, at its bandwidth (Zen 4, 2026-11)
    tile_stream: float = 2.5
    # additional cycles of a row that competes for its set of L1; they grow with the square if L2 is crowded,
    # too (Zen 4, 2026-11)
    tile_crowded: float = 0.8
    # share of L2 for a panel besides its rows: with 3072 steps, 96 columns are 2 % slower than 48 (Zen 4,
    # 2026-11)
    panel: float = 0.75
    # Half registers are used if they leave less of a register empty, by this factor. A processor that
    # executes an operation on a whole register in two halves needs half the time for half a register. Whole
    # registers hold more columns (24 columns 1.3 x, 8 columns 1.8 x as fast; Zen 4, 2026-11). inf: never
    halves: float = 1.15
    # unrolled steps of a long reduction, which hide the loop's own instructions (Zen 4, 2026-11)
    written: int = 1
    # up to this extent, the last reduction is unrolled although the loop around it is cut: otherwise it would
    # end after irregular steps, which are mispredicted (Zen 3, 2026-11)
    short_cut: int = 0
    # cost in FMAs of a vector from L2, besides its own FMAs (none observed, Zen 4, 2026-11)
    panel_wait: float = 0.0
    # Up to this many steps of a reduction, wide tiles should write large results: a row of a tile then costs
    # `run` FMAs besides its own. In wider tiles, fewer runs of lines are written at the same time. For 2048 x
    # 2048 results of 16 steps, 6 x 4 tiles with copied panels are 1.05 to 1.3 x as fast as 14 x 2
    # tiles; the gain depends on the addresses of the arrays. For 3136 x 256 results of 64 steps they are
    # 1.01 x as fast (Zen 5, 2026-11)
    writes: int = 32
    run: float = 0.25  # see `writes` (Zen 5, 2026-11)
    # speed of a tile from which sums leave the registers; with 28 sums, less than one does (Xeon, 2026-11)
    pushed_out: float = 0.96

    # -- dot instructions: beginnings of their names, and their operations per second divided by those of FMAs
    # in float32, both in whole registers
    dots: tuple[tuple[str, float], ...] = (("vpdpb", 4.0), ("vdpbf16ps", 2.0))  # (chosen, 2026-11)

    # Whether tiles of sums of bytes' products should leave registers for the scales that follow. 7 x 2 sums
    # are as fast as 14 x 2 in 3x3 convolutions of 14 to 56 pixels, 1.09 x in one of 7, and 1.03 to 1.06 x in
    # 1x1 of 64 to 1024 channels: after the sums, fewer values leave the registers, and the next tile's
    # products begin early (Zen 4, 2026-11)
    halves_full_tiles: bool = True
    # Most sums in a tile of bytes' products; 0: as many as fit into the registers. Tiles of 7 x 2 sums take
    # 264 us in a 3x3 of 7x7x512 whose weights come from beyond L2, 28 x 1 take 365, and 14 x 2 289. In 3x3 of
    # 14 to 56 pixels they are 1.0 to 1.1 x as fast as 28 x 1 and 6 x 4: a core that multiplies two registers
    # in a cycle also loads only two, so tiles of one vector wait for loads (Zen 5, 2026-12)
    byte_sums: int = 0  # (chosen, 2026-12)

    # -- products: cycles for a vector of a panel, besides those of its products
    stream_cost: float = 0.5  # for reading it from the last cache (Zen 4, 2026-11)
    memory_cost: float = 4.0  # for reading it from memory (Zen 4, 2026-11)
    copy_cost: float = 2.0  # for copying it (Zen 4, 2026-11)
    # cost of copying the padding of a block's rows, in columns of tiles (Zen 4, 2026-11)
    pad_cost: float = 0.05
    shallow: int = 64  # with fewer steps, storing a result takes as long as computing it (Xeon, 2026-11)

    # Rows of a tile that adds sums of groups. Beyond 9, each row takes longer, with one vector and with two.
    # 64 rows of 1024 x 1024 in 4 bits take (Zen 4, 2026-11):
    #     tiles of rows x vectors   8 x 3   9 x 2   11 x 2   13 x 2
    #     ms                         1.31    1.45     1.79     2.49
    # 13 rows take 0.27 ms with tiles of at most 8 rows, and 0.49 ms with one tile of 13 rows.
    nested_rows: int = 8
    # If a panel as wide as one vector has at least this many bytes, it is faster to read several such panels
    # at the same time than one panel as wide as a tile. GB/s of one row (Zen 4, 2026-11):
    #     weights                         one panel of four vectors   several panels
    #     4 bits, 1024 x 5632 (8 KiB)          23.4                        19.7
    #     4 bits, 2048 x 2816 (16 KiB)         22.3                        21.4
    #     8 bits, 1024 x 5632 (32 KiB)         22.5                        22.2
    #     8 bits, 2816 x 1024 (88 KiB)         22.8                        24.4
    side_by_side: int = 1 << 14

    # -- convolutions
    conv_step: float = 0.25  # cycles per reduction step besides FMAs and loads (Zen 4, 2026-11)
    # cycles for the broadcast of an element, which is an operand of an FMA (Zen 4, 2026-11)
    conv_row: float = 1.0
    conv_crowded: float = 1.12  # slow-down beyond `free_ways` (5x5 rows 2 KiB apart: 1.15; Zen 4, 2026-11)
    # data and results with more bytes than this many L2s are read from and written to memory; weights stay in
    # L2 meanwhile if they take at most the share `stay` (chosen, 2026-11)
    streamed: int = 4
    stay: float = 0.25  # see `streamed` (chosen, 2026-11)
    # slow-down if rows of a large result are not written as a whole (1x1x1, 64 to 64 channels: 1.3; Zen 4,
    # 2026-11)
    partly: float = 1.1
    ragged: float = 1.01  # least gain of a tile that needs another kernel for the tail (chosen, 2026-11)
    # least gain of a tile over two row axes: its unrolled windows are more code (chosen, 2026-11)
    more_code: float = 1.02

    # -- windows: depthwise convolution, pooling
    # share of the registers for a tile, a row of its inputs and a row of weights (Zen 4, 2026-11)
    window_share: float = 0.65
    # the same share if lines of a tile push each other out of L1 (Zen 4, 2026-11)
    window_crowded: float = 0.35
    # Most vectors that a tile may hold; four registers are left for other values. Larger tiles had 5 to 350
    # moves to or from the stack, and took 0.98 to 1.1 x the time of the best tile without moves (depthwise
    # 3x3, 3x3/2, 5x5, pooling 3x3/2; Zen 4, 2026-11)
    window_held: float = 28.0
    window_spill: float = 4.0  # cycles for each vector beyond `window_held` (Zen 4, 2026-11)
    window_load: float = 0.25  # cycles of a load besides operations (Zen 4, 2026-11)
    window_tile: float = 6.0  # cycles of a tile's loop, branches and drained accumulators (Zen 4, 2026-11)
    # Most lines of inputs that a tile of windows with a stride of two or more may read for each vector of
    # channels. The lines are read alternately; the more there are, the worse is the prefetching. 2 x 2 sums
    # have 25 lines, and 3 x 3 have 49. With 2 x 2 sums, pooling 3x3/2 is 1.24 x as fast (112x112x64), 1.12 x
    # (56x56x64) and 1.08 x (28x28x480); depthwise 3x3/2 is 0.94 to 1.07 x as fast. Windows with a stride of
    # one share most of their lines, so 3 x 4 sums are still 1.1 x as fast as 2 x 2 (pooling 3x3 of 28x28x192;
    # Zen 4, two cores, 2026-11)
    window_lines: int = 25
    window_apart: float = 0.5  # cycles for each line beyond `window_lines` (Zen 4, two cores, 2026-11)
    # most vectors of a channel block; longer rows are no longer in the cache when the next row is read
    # (chosen, 2026-11)
    window_longest: int = 12

    # -- stencils
    # unrolled rows, which share loads: 27 points of 130 x 130 x 130 are 1.65 x as fast as with one row, and a
    # star of radius 4 is 1.3 x as fast (Zen 5, 2026-11)
    stencil_rows: int = 4
    # If rows do not begin at a cache line, writing several rows at once costs more. It is done if they save
    # this many loads for each row. On Zen 4, no saving is necessary: 5 points of 700 or 1300 columns are 1.25
    # x as fast with four rows as with one (Zen 4, 2026-11)
    stencil_ragged: float = 0.0
    # the same if rows are also nearly whole pages apart: 5 points of 1020 columns in a tile are 0.91 x as
    # fast with two rows as with one, and 0.8 x with four (Zen 4, 2026-11)
    stencil_paged: float = 3.0
    # rows share loads only up to this many common values for each register: with 27 points, four rows have 36
    # common values and are 0.9 x as fast as two rows, which have 18 (Zen 4, 2026-11)
    stencil_held: float = 1.0
    # Rows that are whole pages apart may have this many times as many lines in one set of L1 as the set has
    # ways; the other lines come from L2. hotspot of 1024 columns has 14 lines with four rows, and is 1.15 x
    # as fast as with one row. Sums down columns of two to three arrays have 10 to 14 lines with two rows, and
    # are 1.05 to 1.3 x as fast as with one row (Zen 4, 2026-11)
    stencil_ways: float = 2.0

    # If stages slide along whole rows, the shorter one of the times for operations and for moving bytes
    # counts with this share. With 0.7, strips come first in eleven pipelines, which are 0.99 to 1.2 x as
    # fast, 1.07 in the mean; with 0.5, one is 0.89 x as fast (Zen 4, 2026-11)
    strips_felt: float = 0.7

    # -- the prior
    prior_fine: float = 5e-6  # pieces below these seconds overlap with stages around them (chosen, 2026-11)
    prior_step: float = 0.5  # cycles of an innermost iteration besides FMAs and loads (Zen 4, 2026-11)
    # cycles of a load besides FMAs: two ports; broadcasts fold into the FMA (Zen 4, 2026-11)
    prior_load: float = 0.6
    # slow-down of a tile that needs more registers than there are (chosen, 2026-11)
    prior_spilled: float = 2.5
    # time of a division in FMAs; a square root takes 10, but counts as a division
    prior_division: float = 6.0  # (Zen 4, 2026-11)
    # bytes from beyond L2 that are lost when fetching ahead starts again: with 256 to 512, the prior is right
    # about most of 93 programs (Xeon, 2026-11)
    prior_start: float = 512.0
    prior_streams: int = 8  # arrays that are fetched ahead at the same time (Xeon, 2026-11)
    prior_overlap: float = 0.3  # share of the other parts' times that adds to the longest (chosen, 2026-11)
    # cycles of a scalar that must come from L2 because its set of L1 is too full (Zen 4, 2026-11)
    prior_crowded: float = 4.0
    # the same for a vector of a window, during which other vectors are loaded (Zen 4, 2026-11)
    prior_crowded_window: float = 1.0
    # if a set has this many times more lines than ways, every scalar must come from L2 (Zen 4, 2026-11)
    prior_crowded_lines: float = 2.4

    tiles: Tiles = TILES  # for processors with AMX (Emerald Rapids, 2026-11)
    winograd: Winograd = WINOGRAD  # see class Winograd (Zen 4, 2026-11)

    def __post_init__(self) -> None:
        if self.vector_bytes not in WIDTHS:
            raise TargetError(
                f"processor {self.name!r} has vectors of {self.vector_bytes} bytes.",
                fix=f"A register has {', '.join(map(str, WIDTHS))}.",
            )


ZEN4 = Cpu()
# Xeons multiply two whole registers in a cycle, like all processors that do not halve registers
XEON = replace(
    ZEN4,
    name="xeon",  # Xeon Sapphire Rapids, a virtual machine
    # processors of x86-64-v4 that are not AMD's; x86-64-v4 itself stands for any of them
    archs=(
        *("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client"),
        *("icelake-server", "tigerlake", "rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids"),
    ),
    multiplies=2.0,  # (Xeon, 2026-11)
    cache_bytes=(48 << 10, 2 << 20),  # the size of the third cache depends on the cores (Xeon, 2026-11)
    halves=inf,  # (Xeon, 2026-11)
    halves_full_tiles=False,  # (chosen, 2026-11)
    # with 5 points, four rows take 1.4 x the time of one; with 27 points 0.6 x (Xeon, 2026-11)
    stencil_ragged=3.0,
    stencil_held=1.25,  # 27 points in 16 registers: four rows take 1.25 x the time of two (Zen 3, 2026-11)
    stencil_ways=1.0,  # (Zen 3, 2026-11)
    strips_felt=1.0,  # (chosen, 2026-11)
    folded=0.0,  # (chosen, 2026-11)
    written=4,  # with 1, the loop's own instructions and end cost 3 to 15 % (Sapphire Rapids, 2026-11)
    short_cut=8,  # the extent up to which reductions are unrolled (chosen, 2026-11)
    # with 14 x 2 tiles instead of 5 x 5, 49 rows of 960 steps are 1.06 x as fast; with 8 x 3 instead of 4 x
    # 6, 128 rows of 3072 steps 1.12 x (Sapphire Rapids, 2026-11)
    panel_wait=0.25,
    prior_division=8.0,  # (chosen, 2026-11)
    # one core does 806, 96 and 253 G operations/s, and 214 with FMAs; vdpbf16ps takes two cycles (Emerald
    # Rapids, 2026-11). For tiles, Intel's manual says 2048 and 1024 operations per cycle.
    dots=(("vpdpb", 3.8), ("vpmaddwd", 1.2), ("vdpbf16ps", 0.45), ("tdpbusd", 32.0), ("tdpbf16ps", 16.0)),
)
# The options that the count chooses for Winograd's method are 4 % slower in the mean than the best measured
# options (warm weights, seven layers of 56, 28, 14 and 7 pixels and 256 to 512 channels, on 1 and 2 cores).
# They were 10 % slower while blocks by columns were counted like blocks by tiles: 28x28x512 on one core took
# 8.1 ms, now 6.1, the best 5.9. In units of products, data from L2 and memory costs twice as much as on Zen
# 4. Direct kernels take 7 % more than their count, so 1.03 for `sure` means 1.1 (Zen 5, 2026-11)
ZEN5 = replace(
    XEON,
    name="zen5",  # LLVM's name also stands for laptop parts that halve registers
    archs=("znver5",),  # (Zen 5, 2026-11)
    cache_bytes=(48 << 10, 1 << 20, 32 << 20),  # (Zen 5, 2026-11)
    dots=(("vpdpb", 4.0), ("vdpbf16ps", 1.9)),  # (Zen 5, 2026-11)
    byte_sums=16,  # (Zen 5, 2026-12)
    # fitted as described above (Zen 5, 2026-11)
    winograd=Winograd(
        2, 0.0, 1.09, l2_share=0.65, far=0.84, crowd=0.19, last_share=0.5, line=19.0, memory=17.0,
        alone=10.5, again=17.0, sure=1.03, stream=1.6, moves=2.6, panel=3.2, passing=0.03,
    ),
)  # fmt: skip
ZEN3 = replace(
    XEON,
    name="zen3",  # for all processors with AVX2
    archs=("x86-64-v3", "haswell", "skylake", "znver2", "znver3"),  # (Zen 3, 2026-11)
    vector_bytes=32,  # (Zen 3, 2026-11)
    masked_terms=32,  # 40 to 128 terms are 1.02 x as fast in the mean, 512 1.65 x (AVX2 on Zen 4, 2026-11)
    dots=(("vpdpb", 4.0), ("vpmaddwd", 1.3)),  # (chosen, 2026-11)
    vector_registers=16,  # (Zen 3, 2026-11)
    cache_bytes=(32 << 10, 512 << 10, 32 << 20),  # (Zen 3, 2026-11)
    # A fifth more than the registers: the stored vectors would otherwise be loaded more often (5x5/2: 2 x 2
    # sums with 44 moves are 1.04 x as fast as 1 x 4 without moves). Half as many more are too many (3x3: 3 x
    # 4 with 228 moves take 1.25 x the time of 3 x 2; AVX2 on Zen 4, 2026-11)
    window_held=1.2 * 16,
    # the chosen options are 5 % slower than the best in the mean, over 4 layers, 1 and 2 cores (Zen 3,
    # 2026-11)
    winograd=Winograd(2, 1.0, 1.55, l2_share=inf, far=1.0, crowd=0.6, last_share=1 / 8, line=20.0),
)
ZEN1 = replace(
    ZEN3,
    name="zen1",  # the first Zen executes an operation on a whole register in two halves, as Zen 4 does
    archs=("znver1",),
    multiplies=1.0,  # (Zen 1, 2026-12)
    cache_bytes=(32 << 10, 512 << 10, 8 << 20),  # four cores share the third cache (Zen 1, 2026-12)
    clock=2.5e9,  # (Zen 1, 2026-12)
    bandwidths=(66e9, 45e9, 13e9),  # (Zen 1, 2026-12)
    latency=5,  # (Zen 1, 2026-12)
    accumulators=5,  # (Zen 1, 2026-12)
    halves=1.15,  # halves do twice as many operations a cycle (Zen 1, 2026-12)
    tile_stream=1.7,  # (Zen 1, 2026-12)
    panel_wait=0.0,  # tiles of 4 x 2 reach 100 % of the peak from L1 and from L2 (Zen 1, 2026-12)
    stream_cost=0.2,  # (Zen 1, 2026-12)
    # a vpmaddwd takes two cycles, and the addition takes other units (Zen 1, 2026-12)
    dots=(("vpmaddwd", 0.95),),
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
    masked_terms=32,  # (chosen, 2026-11)
    dots=(*((name, 4.0) for name in ("sdot", "udot", "usdot", "sudot")), ("bfdot", 2.0)),  # (chosen, 2026-11)
    cache_bytes=(64 << 10, 1 << 20),  # (chosen, 2026-11)
)
OURS = (ZEN4, XEON, ZEN5, ZEN3, ZEN1, V2, NEOVERSE)
RECORDS = list(OURS)  # records of other packages come first
CPUS: Door[Cpu] = Door(  # entry points have LLVM's names of their processors
    "record of a processor", "autotensor.cpus", lambda thing: isinstance(thing, Cpu), error=TargetError
)
# weights of a doubling of vector width, registers, FMAs per cycle, or a cache, by how much the code differs
WEIGHTS = (4.0, 2.0, 2.0, 1.0)


def register(cpu: Cpu) -> Cpu:
    """Registers a record, which replaces our records for its processors. Call it before schedules are made.

    Raises TargetError for an object that is not a record, if another record has its name, if a record of
    another package is for the same processor, and if our record of a processor has other vectors.
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
    """Raises TargetError if other records for a processor do not allow a further record for it."""
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

    multiplies: the calibrated FMAs of whole registers per cycle, which a target does not contain; None: two.
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
    """Cycles, besides the load, to copy a scalar into a whole register; 0 if loads do this."""
    return 0.0 if spreads_loads(target) else cpu_of(target).spread


def distance(cpu: Cpu, target: Target, multiplies: float = 2.0) -> float:
    """The distance between a processor and a record: doublings of features, weighted by WEIGHTS; 0.0 if all
    are equal."""
    theirs = (cpu.vector_bytes, cpu.vector_registers, cpu.multiplies, *cpu.cache_bytes)
    ours = (target.vector_bytes, target.vector_registers, multiplies, *target.cache_bytes)
    weights = (*WEIGHTS, *WEIGHTS[3:] * len(cpu.cache_bytes))
    return sum(w * abs(log2(a / b)) for w, a, b in zip(weights, theirs, ours, strict=False))
