"""`infer_variable_shapes`: shapes of variables that layers made before their input's shape was known.

for v, name, shape in tf.infer_variable_shapes(loss, feed_dict={x: [100, 784], label: [100]}):
    init.append(tf.assign(v, tf.normal(shape)))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotensor.base.errors import GraphError
from autotensor.flow.control import producers_first
from autotensor.flow.nn import Layer
from autotensor.flow.nodes import Literal, Node, Operation, Spec
from autotensor.flow.variables import Variable
from autotensor.graph.build import constant
from autotensor.graph.ir import GraphNode, Input


def infer_variable_shapes(
    node: Node, feed_dict: Mapping[Node, Sequence[int]]
) -> list[tuple[Variable, str, tuple[int, ...]]]:
    """(variable, name, shape) of every variable that `node` depends on and whose shape was unknown. These
    shapes are known from now on.

    feed_dict: the shapes of the placeholders. Raises GraphError when a shape does not follow from them.
    """
    nodes: dict[Node, GraphNode] = {}
    found: list[tuple[Variable, str, tuple[int, ...]]] = []
    for n, x in enumerate(producers_first([node])):
        match x:
            case Layer():
                data = nodes[x.inputs[0]].shape
                for variable, shape in zip(x.inputs[1:], x.shapes(data), strict=True):
                    assert isinstance(variable, Variable)
                    if variable.spec.shape is None:
                        variable.spec = Spec(variable.dtype, shape)
                        found.append((variable, variable.name, shape))
                    nodes[variable] = Input(variable.name, variable.spec.type(), n)
                nodes[x] = x.lower(*(nodes[i] for i in x.inputs))
            case Literal():
                nodes[x] = constant(x.value, dtype=x.dtype)
            case Operation():
                nodes[x] = x.lower(*(nodes[i] for i in x.inputs))
            case Variable() if x.spec.shape is None:
                continue  # its layer comes later
            case _:
                nodes[x] = Input(x.name, _given(x, feed_dict).type(), n)
    return found


def _given(x: Node, feed_dict: Mapping[Node, Sequence[int]]) -> Spec:
    spec = Spec(x.dtype, tuple(feed_dict[x])) if x in feed_dict else x.spec
    if not spec.known:
        raise GraphError(f"{x.name} ({x.at}): its shape is not known.", fix="Give one in feed_dict.")
    return spec
