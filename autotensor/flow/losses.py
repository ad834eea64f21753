"""Loss functions of static graphs; each gives one number, the mean over the examples.

L2 (regression), hinge (margins), softmax (classes), ranking (which of two should be higher).
"""

from __future__ import annotations

from typing import Any

from autotensor.flow.nn import relu, softmax_cross_entropy_with_logits
from autotensor.flow.nodes import Node, as_node
from autotensor.flow.ops import reduce_mean, square

__all__ = ["hinge", "l2", "ranking", "softmax"]


def l2(predictions: Any, targets: Any) -> Node:
    """mean((p - t)²)"""
    return reduce_mean(square(as_node(predictions) - targets))


def hinge(scores: Any, signs: Any) -> Node:
    """mean(max(0, 1 - s y)); signs y: -1 or 1."""
    return reduce_mean(relu(1.0 - as_node(signs) * scores))


def softmax(logits: Any, labels: Any) -> Node:
    """mean(-sum(labels * log softmax(logits))); labels: one distribution per row."""
    return reduce_mean(softmax_cross_entropy_with_logits(logits=logits, labels=labels))


def ranking(higher: Any, lower: Any, margin: float = 1.0) -> Node:
    """mean(max(0, margin - (higher - lower))): the first score should beat the second by the margin."""
    return reduce_mean(relu(margin - (as_node(higher) - lower)))
