"""Gradients of graphs: reverse mode, rules and derivatives, optimisers, steps of training.

    loss = ops.mean(…)
    dw, db = gradients([loss], [w, b])         # ordinary nodes: fused, tuned and linked like all others

Start reading at `reverse_mode.py` (the walk over a graph), then `body_gradients.py` (operators without a
rule) and, below it, `derivatives.py` and `inverse_accesses.py`. `gradient_rules.py` holds the gradients that
are written by hand.
"""

from autotensor.autodiff.gradient_table import gradient
from autotensor.autodiff.reverse_mode import gradients

__all__ = ["gradient", "gradients"]
