"""Behind tensors: known values, nodes that stand for others, and the times at which they are computed.

    node ──known──▶ array          computed, or given
    input ─defined─▶ node          a value cut off from the tape: an input to differentiation only

Nothing is computed until somebody looks. Then the part of the graph between known values and what is looked
at is one program (`api/style_programs.py`), which is found again by its structure in the next turn of a loop.
A parameter that was changed is *pending*: the next time that one is read all pending ones are computed, with
the losses whose gradients they came from, so that a training step is one program.
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

if TYPE_CHECKING:  # tensors and traces are only kept here, and given back
    from autotensor.imperative.tensor import Tensor
    from autotensor.imperative.traced_functions import Trace

known: weakref.WeakKeyDictionary[GraphNode, Array] = weakref.WeakKeyDictionary()
defined: weakref.WeakKeyDictionary[GraphNode, GraphNode] = weakref.WeakKeyDictionary()
# A weak reference to the tensor: one that changes often must not keep all the leaves that it was.
_owners: weakref.WeakKeyDictionary[GraphNode, weakref.ref[Tensor]] = weakref.WeakKeyDictionary()
# Dictionaries for their order: a set's would make another program of every turn of a loop.
_pending: weakref.WeakKeyDictionary[GraphNode, None] = weakref.WeakKeyDictionary()
_roots: weakref.WeakKeyDictionary[GraphNode, None] = weakref.WeakKeyDictionary()  # losses of their gradients

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
    """Says whose gradient that of this leaf is."""
    _owners[node] = weakref.ref(tensor)


def owner(node: GraphNode) -> Tensor | None:
    """The tensor that gets the leaf's gradient, if there is one."""
    found = _owners.get(node)
    return None if found is None else found()


def stand_in(node: GraphNode, name: str = "t") -> Input:
    """A new input that has the value of `node`, and is data to differentiation."""
    made = graph_input(node.shape, node.dtype, name)
    defined[made] = node
    return made


def arrays_of(nodes: Sequence[GraphNode]) -> list[Array]:
    """The values of nodes, computed together where they are not known.

    Raises GraphError inside a function that is being traced: it has no values.
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
    """Keeps a value; the node no longer needs what it was made of."""
    array.flags.writeable = False
    known[node] = array
    defined.pop(node, None)
    _pending.pop(node, None)
    _roots.pop(node, None)


def postpone(node: GraphNode) -> None:
    """The new value of a parameter, computed when one of them is read."""
    _pending[node] = None


def remember_root(node: GraphNode) -> None:
    """A loss: computed along with the parameters that its gradients change."""
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
    """A new array: whole Python numbers become int64, others float32; arrays keep their type."""
    array = np.array(value)
    if dtype is not None:
        from autotensor.base.dtype import dtype_of

        return array.astype(dtype_of(dtype).numpy)
    given = isinstance(value, (np.ndarray, np.generic))
    return array.astype(np.float32) if array.dtype == np.float64 and not given else array
