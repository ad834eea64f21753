"""Rules that improve a graph: they recognise attention and norms, fold constants, change layouts, merge sums.

    for pass_ in PASSES: graph = pass_.run(graph)

Each family of rules has a file. The passes are listed here, because their order matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autotensor.base import log, switches
from autotensor.base.dtype import DType, bfloat16, dtype_of
from autotensor.base.target import HALVES
from autotensor.graph.evaluate import ReadsOutside
from autotensor.graph.ir import Apply, Graph
from autotensor.graph.rules.affine import fold_batch_norm
from autotensor.graph.rules.attention import in_place
from autotensor.graph.rules.attention_scores import recognise_attention
from autotensor.graph.rules.bfloat16_products import in_bfloat16
from autotensor.graph.rules.broadcasts import broadcasts_last
from autotensor.graph.rules.canonical import canonicalize
from autotensor.graph.rules.common_subexpressions import common_subexpressions
from autotensor.graph.rules.constants import fold_constants
from autotensor.graph.rules.gelu import recognise_gelu
from autotensor.graph.rules.grouped_weights import grouped_weights
from autotensor.graph.rules.integers import in_integers
from autotensor.graph.rules.joint_attention import joint_products
from autotensor.graph.rules.kept_layers import refuse_unknown
from autotensor.graph.rules.layout import channels_last
from autotensor.graph.rules.linear_sums import merge_sums
from autotensor.graph.rules.narrow_floats import float32_inside
from autotensor.graph.rules.norms import recognise_norms
from autotensor.graph.rules.quantised.byte_tables import byte_tables
from autotensor.graph.rules.single_pixel import single_pixels
from autotensor.graph.rules.weight_storage import in_16_bits, rounded_weights

__all__ = [
    "GPU_PASSES",
    "IN_16_BITS",
    "IN_FLOAT32",
    "IN_INTEGERS",
    "OPEN_PASSES",
    "PASSES",
    "Pass",
    "canonicalize",
    "channels_last",
    "common_subexpressions",
    "fold_batch_norm",
    "fold_constants",
    "merge_sums",
    "optimize",
    "optimize_for",
]


@dataclass(frozen=True, slots=True)
class Pass:
    """A named rewriting of whole graphs."""

    name: str
    run: Callable[[Graph], Graph]


IN_FLOAT32 = Pass("float32 inside", float32_inside)  # first: all other rules expect float32

IN_INTEGERS = Pass("in integers", in_integers)

GROUPED_WEIGHTS = Pass("grouped weights", grouped_weights)

IN_16_BITS = Pass("weights in 16 bits", in_16_bits)  # last: no other rule has to handle it

PASSES: tuple[Pass, ...] = (
    IN_FLOAT32,
    Pass("canonicalize", canonicalize),
    # before the next pass: the functions are still in floats, as written
    Pass("tables of bytes", byte_tables),
    IN_INTEGERS,  # before constants are folded: the weights are still integers
    GROUPED_WEIGHTS,  # before constants are folded, too
    # before folding, which skips results that are much larger than their inputs
    Pass("broadcasts last", broadcasts_last),
    Pass("fold constants", fold_constants),
    Pass("gelu from parts", recognise_gelu),  # after folding: constants are numbers
    Pass("norms from parts", recognise_norms),
    Pass("attention from parts", recognise_attention),
    Pass("fold batch norm", fold_batch_norm),
    Pass("merge sums", merge_sums),  # after folding: scales are in the weights
    Pass("channels last", channels_last),  # after folding: fewer constants to transpose
    Pass("canonicalize again", canonicalize),
    Pass("fold constants again", fold_constants),
    Pass("masks as they are made", broadcasts_last),  # after folding: some masks turn out to hide nothing
    Pass("single pixels", single_pixels),  # after folding: norms are in the weights
    # before "attention in place": after it, each third of a product is a separate view
    Pass("joint products", joint_products),
    Pass("attention in place", in_place),
    Pass("common subexpressions", common_subexpressions),
    IN_16_BITS,
)


def optimize_for(
    numerics: str,
    graph: Graph,
    passes: tuple[Pass, ...],
    pays: Callable[[Apply], bool],
    keep: tuple[str, ...] = (),
) -> Graph:
    """The graph after the passes for these numerics.

    pays: whether a product is faster in bfloat16. keep: patterns of layers that stay in float32. Raises as
    `optimize` does, and also GraphError for a pattern that matches no layer.
    """
    if numerics not in HALVES:
        return optimize(graph, passes)
    graph = optimize(graph, tuple(p for p in passes if p is not IN_16_BITS))
    refuse_unknown(graph, keep)
    return optimize(graph, _in_halves(dtype_of(HALVES[numerics]), IN_16_BITS in passes, pays, keep))


def _in_halves(
    kind: DType, stored: bool, pays: Callable[[Apply], bool], keep: tuple[str, ...]
) -> tuple[Pass, ...]:
    """The passes that round, after all other passes. stored: whether weights are stored in 16 bits, too."""
    rounded = Pass(f"weights rounded to {kind}", partial(rounded_weights, kind=kind, keep=keep))
    if not stored:
        return (rounded,)
    if kind != bfloat16:
        return rounded, IN_16_BITS
    # last: products of few rows have their weights in 16 bits by then, and read float32
    return rounded, IN_16_BITS, Pass("products in bfloat16", partial(in_bfloat16, pays=pays, keep=keep))


# If one plan serves all extents, the number of a product's rows is known only at the call.
OPEN_PASSES = tuple(p for p in PASSES if p not in (GROUPED_WEIGHTS, IN_16_BITS))

# GPUs have units for products of 16-bit floats
GPU_PASSES = tuple(p for p in PASSES if p not in (IN_FLOAT32, GROUPED_WEIGHTS, IN_16_BITS))


def optimize(graph: Graph, passes: tuple[Pass, ...] = PASSES) -> Graph:
    """The graph after all passes.

    A pass that raises an error is left out with a warning, because no model needs it to run. With
    AUTOTENSOR_STRICT=1, the error is raised. Raises ReadsOutside for constants that hold indices outside of
    an array.
    """
    for p in passes:
        before = graph
        try:
            graph = p.run(graph)
        except ReadsOutside:  # the error is in the model
            raise
        except Exception as error:
            if switches.strict():
                raise
            log.warn(
                f"Graph pass {p.name!r} fails on {graph.name!r} and is left out "
                f"({type(error).__name__}: {error}); the model may be slower. Please report this."
            )
        if before.outputs != graph.outputs:
            log.at(5, lambda p=p, graph=graph: f"graph pass {p.name}:\n{graph}")  # type: ignore[misc]
    return graph
