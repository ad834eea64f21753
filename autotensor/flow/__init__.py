"""The static style, in TensorFlow 1's spelling: nodes, sessions, variables, loops, layers, losses, data sets.

    import autotensor.flow as tf

    x = tf.placeholder(tf.float32, [None, 784])
    W = tf.Variable(tf.zeros([784, 10]))
    y = tf.nn.softmax(tf.matmul(x, W))
    …
    sess = tf.Session()
    sess.run(tf.initialize_all_variables())
    sess.run(train_step, feed_dict={x: images, y_: labels})

Start reading at `nodes.py`, then `session.py` and `flow_to_graph.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from autotensor.base.dtype import bool_ as bool
from autotensor.base.dtype import float32, float64, int32, int64, uint8
from autotensor.flow import losses, nn, train
from autotensor.flow.control import cond, merge, switch, while_loop
from autotensor.flow.flow_gradients import gradients, stop_gradient
from autotensor.flow.nodes import Node, constant
from autotensor.flow.ops import (
    SPELLING,
    add_n,
    argmax,
    argmin,
    cast,
    clip_by_value,
    concat,
    expand_dims,
    fill,
    gather,
    matmul,
    normal,
    one_hot,
    ones,
    ones_like,
    placeholder,
    random_normal,
    random_uniform,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reshape,
    slice,
    square,
    squeeze,
    transpose,
    truncated_normal,
    where,
    zeros,
    zeros_like,
)
from autotensor.flow.scope import StaticGraph, control_dependencies, reset_default_graph
from autotensor.flow.session import Session
from autotensor.flow.variable_shapes import infer_variable_shapes
from autotensor.flow.variables import (
    Variable,
    assign,
    assign_add,
    assign_sub,
    group,
    initialize_all_variables,
    no_op,
    restore,
    save,
    trainable_variables,
    variables,
)


def __getattr__(name: str) -> Callable[..., Node]:
    """Elementwise operators by TensorFlow's names or the library's: `flow.negative`, `flow.asinh`."""
    return SPELLING(name, sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__


Graph = StaticGraph
global_variables_initializer = initialize_all_variables
linear = nn.linear

__all__ = [
    "Graph",
    "Node",
    "Session",
    "StaticGraph",
    "Variable",
    "add_n",
    "argmax",
    "argmin",
    "assign",
    "assign_add",
    "assign_sub",
    "bool",
    "cast",
    "clip_by_value",
    "concat",
    "cond",
    "constant",
    "control_dependencies",
    "expand_dims",
    "fill",
    "float32",
    "float64",
    "gather",
    "global_variables_initializer",
    "gradients",
    "group",
    "infer_variable_shapes",
    "initialize_all_variables",
    "int32",
    "int64",
    "linear",
    "losses",
    "matmul",
    "merge",
    "nn",
    "no_op",
    "normal",
    "one_hot",
    "ones",
    "ones_like",
    "placeholder",
    "random_normal",
    "random_uniform",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reset_default_graph",
    "reshape",
    "restore",
    "save",
    "slice",
    "square",
    "squeeze",
    "stop_gradient",
    "switch",
    "train",
    "trainable_variables",
    "transpose",
    "truncated_normal",
    "uint8",
    "variables",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
]
__all__ += sorted({*SPELLING.names()} - {*__all__})
