"""The engine behind tensors: known values, nodes that stand for others, and when values are computed.

    node ──known──▶ array          computed, or given
    input ─defined─▶ node          a value cut off from the tape: differentiation stops at the input

Nothing is computed until a value is read. Then the part of the graph between known values and the value that
is read becomes one program (`api/style_programs.py`). The next turn of a loop finds this program again by its
structure. A parameter that was changed is *pending*. When one pending parameter is read, all of them are
computed, with the losses whose gradients changed them, so that a training step is one program.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.api.style_programs import Programs
from autotensor.base.errors import GraphError
from autotensor.base.target import Target
from autotensor.graph.build import input as graph_input
from autotensor.graph.ir import Array, GraphNode, Input

if TYPE_CHECKING:  # this module only keeps tensors and traces, and gives them back
    from autotensor.imperative.tensor import Tensor
    from autotensor.imperative.traced_functions import Trace

known: weakref.WeakKeyDictionary[GraphNode, Array] = weakref.WeakKeyDictionary()
defined: weakref.WeakKeyDictionary[GraphNode, GraphNode] = weakref.WeakKeyDictionary()
# Weak references to tensors: a tensor that changes often must not keep all its former leaves alive.
_owners: weakref.WeakKeyDictionary[GraphNode, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()
# Dictionaries, because they keep an order: the order of a set would give each turn of a loop another program.
_pending: weakref.WeakKeyDictionary[GraphNode, None] = weakref.WeakKeyDictionary()
_roots: weakref.WeakKeyDictionary[GraphNode, None] = weakref.WeakKeyDictionary()  # losses of pending ones

_programs: dict[Target | None, Programs] = {}
_target: ContextVar[Target | None] = ContextVar("autotensor_imperative_target", default=None)
_recording: ContextVar[bool] = ContextVar("autotensor_imperative_grad", default=True)
tracing: ContextVar[Trace | None] = ContextVar("autotensor_imperative_trace", default=None)


def programs() -> Programs:
    """The programs of the current device."""
    target = _target.get()
    found = _programs.get(target)
    return found if found is not None else _programs.setdefault(target, Programs(target))


@contextmanager
def device(target: str | Target) -> Iterator[None]:
    """Computations inside the block run on this target ("interp": the operators' NumPy references)."""
    token = _target.set(Programs(target).target)
    try:
        yield
    finally:
        _target.reset(token)


# -- values ----------------------------------------------------------------------------------------------


def leaf(array: Array, name: str = "t") -> Input:
    """A new input with this value, which is read-only from now on."""
    array.flags.writeable = False
    node = graph_input(array.shape, str(array.dtype), name)
    known[node] = array
    return node


def own(node: GraphNode, tensor: Tensor) -> None:
    """Makes `tensor` the one that gets the gradient of this leaf."""
    _owners[node] = weakref.ref(tensor)


def owner(node: GraphNode) -> Tensor | None:
    """The tensor that gets the leaf's gradient, if there is one."""
    found = _owners.get(node)
    return None if found is None else found()


def stand_in(node: GraphNode, name: str = "t") -> Input:
    """A new input with the value of `node`. Differentiation sees it as data."""
    made = graph_input(node.shape, node.dtype, name)
    defined[made] = node
    return made


def arrays_of(nodes: Sequence[GraphNode]) -> list[Array]:
    """The values of nodes; unknown ones are computed together.

    Raises GraphError inside a function that is being traced, because its tensors have no values.
    """
    missing = [n for n in nodes if n not in known]
    if missing:
        trace = tracing.get()
        if trace is not None:
            raise GraphError(
                f"{trace.name} needs a value while it is traced, when there are no values yet.",
                fix="Branch with imperative.where inside a compiled function, or do not compile it.",
            )
        for node, array in zip(missing, programs().run(missing, known, defined), strict=True):
            settle(node, array)
    return [known[n] for n in nodes]


def settle(node: GraphNode, array: Array) -> None:
    """Keeps a node's value. The node no longer needs the nodes from which it was computed."""
    array.flags.writeable = False
    known[node] = array
    defined.pop(node, None)
    _pending.pop(node, None)
    _roots.pop(node, None)


def postpone(node: GraphNode) -> None:
    """Makes a parameter's new value pending: it is computed when a pending parameter is read."""
    _pending[node] = None


def remember_root(node: GraphNode) -> None:
    """Remembers a loss, which is computed along with the parameters that its gradients change."""
    if node not in known:
        _roots[node] = None


def settle_pending(node: GraphNode) -> None:
    """Computes all pending parameters if `node` is one of them."""
    if node in _pending and tracing.get() is None:
        arrays_of([*_pending, *_roots])


# -- whether operations are recorded ---------------------------------------------------------------------


@contextmanager
def no_grad() -> Iterator[None]:
    """Inside the block nothing goes on the tape, and parameters may be changed."""
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


def is_recording() -> bool:
    return _recording.get()


def as_array(value: Any, dtype: Any = None) -> Array:
    """A new array. Python's whole numbers become int64, other numbers float32; arrays keep their type."""
    array = np.array(value)
    if dtype is not None:
        from autotensor.base.dtype import dtype_of

        return array.astype(dtype_of(dtype).numpy)
    given = isinstance(value, (np.ndarray, np.generic))
    return array.astype(np.float32) if array.dtype == np.float64 and not given else array
