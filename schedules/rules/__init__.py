"""The sketch rules, one in a file, from constant stages to general tiles; their order is the table here.

The first rule that returns extensions decides a stage; without one its loops stay as they are written. A
rule that is not in this table names its neighbour (`sketch_rule` of schedules/registry.py).
"""

from __future__ import annotations

from schedules.registry import ANY, GPU, SketchRule
from schedules.rules import (
    constant_stages,
    epilogue,
    inline,
    nested_sums,
    one_pass,
    pipeline,
    pointwise,
    recurrence,
    row_chain,
    short_rows,
    streamed_sums,
)
from schedules.rules.gpu import gpu_bind, gpu_reduce, gpu_tile, tensor_cores
from schedules.rules.rewrites import (
    axis_last,
    fewer_operations,
    other_types,
    shared_work,
)
from schedules.rules.tiles import (
    attention,
    convolution,
    dots,
    tile_cpu,
    tile_general,
    windows,
    winograd,
)

RULES: tuple[SketchRule, ...] = (
    # before all: stages that run once need no good loops, and `inline` would compute them in every call
    SketchRule("constants", constant_stages.constants),
    # before shared_work, because parts of windows have the window's order of axes, and before all that make
    # loops
    SketchRule("axis_last", axis_last.axis_last),
    # before all rules that make decisions: they must see joined stages and the parts of windows
    SketchRule("shared_work", shared_work.shared_work),
    # before all others that make loops: loops over steps must stay in order
    SketchRule("recurrence", recurrence.recurrence, ANY),
    # before all that make loops and would keep the operations, and before inline, which would count calls
    # once for each reader
    SketchRule("fewer_operations", fewer_operations.fewer_operations, ANY),
    # before all other reductions, which would read every term for every element
    SketchRule("one_pass", one_pass.one_pass),
    # before all other products with register tiles; they get the narrow types without a dot instruction
    SketchRule("dots", dots.dots),
    # after dots, which are faster and need products of bytes unchanged, and before all that make loops, whose
    # vectors have the lanes of the widest result
    SketchRule("other_types", other_types.other_types),
    # before convolution, because it offers that rule's sketches among its own
    SketchRule("winograd", winograd.winograd),
    # before inline, epilogue and pointwise: it recognises the whole computation by all its stages
    SketchRule("attention", attention.attention),
    # before tile_cpu, because it offers that rule's sketches, which copy padding, after its own
    SketchRule("convolution", convolution.convolution),
    # before inline, which would decide all stages of a pipeline
    SketchRule("pipeline", pipeline.pipeline),
    # before row_chain, epilogue, pointwise and gpu_bind, which make loops for cheap stages
    SketchRule("inline", inline.inline, ANY, weighed=True),
    # before short_rows, streamed_sums, row_chain and tile_cpu, which would store every inner sum
    SketchRule("nested_sums", nested_sums.nested_sums),
    # before all others that look at one stage of a chain: they would sum along rows, or tile the stages
    SketchRule("short_rows", short_rows.short_rows),
    # before row_chain, which would sum one result after another, and tile_cpu: one core would compute the
    # whole sum, and operands that are read once need no register tile
    SketchRule("streamed_sums", streamed_sums.streamed_sums),
    # before epilogue and pointwise: the last stage of a chain decides the whole chain
    SketchRule("row_chain", row_chain.row_chain),
    # before gpu_tile, because it offers that rule's sketches after its own
    SketchRule("tensor_cores", tensor_cores.tensor_cores, GPU),
    # before gpu_reduce: products read operands repeatedly, and the threads of a block share them
    SketchRule("gpu_tile", gpu_tile.gpu_tile, GPU),
    # before pointwise and gpu_bind, because the reduction before the stage may use the stage's loops
    SketchRule("epilogue", epilogue.epilogue, ANY),
    # before gpu_bind, which gives a long sum to one thread
    SketchRule("gpu_reduce", gpu_reduce.gpu_reduce, GPU),
    # before tile_cpu: no operand of a window is broadcast
    SketchRule("windows", windows.windows),
    # before tile_general, which has no register tiles
    SketchRule("tile_cpu", tile_cpu.tile_cpu),
    # these two last, because they take what is left; their order does not matter
    SketchRule("pointwise", pointwise.pointwise),
    SketchRule("tile_general", tile_general.tile_general),
    # last, because it always applies
    SketchRule("gpu_bind", gpu_bind.gpu_bind, GPU),
)
