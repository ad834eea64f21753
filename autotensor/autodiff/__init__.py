"""Automatic differentiation of graphs: `gradients` adds the nodes of a backward pass.

    loss = ops.mean(…)
    dw, db = gradients([loss], [w, b])         # ordinary nodes: fused, tuned and linked like all others

Start reading at `reverse.py` (the walk over a graph), then `bodies.py` (operators without a rule) and, below
it, `expressions.py` and `inverse.py`. `rules.py` holds what deserves to be written by hand.
"""

from autotensor.autodiff.reverse import gradients
from autotensor.autodiff.table import gradient

__all__ = ["gradient", "gradients"]
