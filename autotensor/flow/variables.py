"""State that lasts from run to run: variables, assignments to them, files of their values.

An assignment changes nothing while a run computes: the run's program gives the new value with its other
results, and the session keeps it afterwards. The graph alone says which nodes read the new value: an
operation sees the assignments that come before it, by data or by `control_dependencies`. Two assignments to
one variable in one run must be ordered; otherwise an error names both lines. So assignments cannot race.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.dtype import bool_
from autotensor.base.errors import GraphError, InputError
from autotensor.flow import scope
from autotensor.flow.node_origin import here
from autotensor.flow.nodes import Array, Effect, Node, Source, Spec, as_node
from autotensor.runtime.files import checkpoint


class Variable(Node):
    """A tensor that the session keeps. `initial` is run by `initialize_all_variables`."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool = True,
        name: str = "Variable",
        spec: Spec | None = None,
    ) -> None:
        if initial_value is None and spec is None:
            raise GraphError(
                f"{here()}: Variable needs an initial value.", fix="Give one, e.g. flow.zeros([10])."
            )
        self.initial = None if initial_value is None else as_node(initial_value)
        self.trainable = trainable
        super().__init__(name, spec if self.initial is None or spec is not None else self.initial.spec)  # type: ignore[arg-type]
        scope.current().variables.append(self)

    @property
    def initializer(self) -> Node:
        """A node that assigns the initial value."""
        if self.initial is None:
            raise GraphError(
                f"variable {self.name} ({self.at}) has no initial value.", fix="Assign one to it."
            )
        return assign(self, self.initial)

    def assign(self, value: Any) -> Node:
        return assign(self, value)

    def assign_add(self, value: Any) -> Node:
        return assign(self, self + value)

    def assign_sub(self, value: Any) -> Node:
        return assign(self, self - value)


class Assign(Node):
    """Gives a variable a new value; its own value is that value."""

    def __init__(self, variable: Variable, value: Node) -> None:
        self.variable = variable
        super().__init__(f"assign_{variable.name}", value.spec, (value,))


class Group(Effect):
    """A node that runs other nodes and has no value."""

    def __init__(self, nodes: Sequence[Node], name: str = "group") -> None:
        super().__init__(name, Spec(bool_, ()), ())
        self.after = (*self.after, *nodes)


class Host(Effect):
    """A Python function that is called in a run, with arrays. Its result is not used."""

    def __init__(self, name: str, call: Callable[..., None], inputs: Sequence[Node]) -> None:
        self.call = call
        super().__init__(name, Spec(bool_, ()), inputs)


def assign(variable: Node, value: Any) -> Assign:
    """A node that gives `variable` the value. Raises GraphError, with the line, when types do not agree."""
    if not isinstance(variable, Variable):
        raise GraphError(f"{here()}: assign needs a Variable, got {variable!r}.")
    new = as_node(value, variable.dtype)
    agrees = new.shape is None or variable.shape is None or _may_equal(new.spec, variable.spec)
    if not agrees or new.dtype != variable.dtype:
        raise GraphError(
            f"{here()}: variable {variable.name} is {variable.spec}, the value assigned is {new.spec}."
        )
    return Assign(variable, new)


def _may_equal(a: Spec, b: Spec) -> bool:
    assert a.shape is not None
    assert b.shape is not None
    return len(a.shape) == len(b.shape) and all(
        m is None or n is None or m == n for m, n in zip(a.shape, b.shape, strict=True)
    )


def assign_add(variable: Variable, value: Any) -> Node:
    """`variable += value`, as a node."""
    return variable.assign_add(value)


def assign_sub(variable: Variable, value: Any) -> Node:
    """`variable -= value`, as a node."""
    return variable.assign_sub(value)


def group(*nodes: Node, name: str = "group") -> Group:
    """A node that runs others and has no value."""
    return Group(nodes, name)


def no_op(name: str = "no_op") -> Group:
    """A node that does nothing; it runs after its control dependencies."""
    return Group((), name)


def initialize_all_variables() -> Group:
    """Assigns every variable of the graph its initial value."""
    return group(*(v.initializer for v in scope.current().variables if v.initial is not None), name="init")


def variables() -> tuple[Variable, ...]:
    """All variables of the graph, in order of creation."""
    return tuple(scope.current().variables)


def trainable_variables() -> tuple[Variable, ...]:
    """The variables that optimisers change by default."""
    return tuple(v for v in scope.current().variables if v.trainable)


# -- files -----------------------------------------------------------------------------------------------


def save(path: str | Path, which: Sequence[Variable] | None = None) -> Host:
    """A node that writes variables to a file. A reader sees the old file or the new one."""
    chosen = tuple(variables() if which is None else which)
    names = [v.name for v in chosen]

    def write(*arrays: Array) -> None:
        checkpoint.save(path, dict(zip(names, arrays, strict=True)))

    return Host("save", write, chosen)


def restore(path: str | Path, which: Sequence[Variable] | None = None) -> Group:
    """A node that assigns to variables the values that a file holds under their names."""
    chosen = variables() if which is None else which
    return group(*(assign(v, _stored(path, v)) for v in chosen), name="restore")


def _stored(path: str | Path, variable: Variable) -> Source:
    def read(rng: np.random.Generator) -> Array:
        return stored_value(checkpoint.load(path)[0], variable, path)

    return Source(f"read_{variable.name}", variable.spec, read)


def stored_value(arrays: dict[str, Array], variable: Variable, path: str | Path) -> Array:
    """The array of a file that belongs to a variable. Raises InputError if the file has none that fits."""
    if variable.name not in arrays:
        raise InputError(
            f"{path} holds no variable {variable.name!r}; it has {', '.join(sorted(arrays)) or 'nothing'}."
        )
    array = arrays[variable.name]
    if not variable.spec.admits(array.shape) or array.dtype != variable.dtype.numpy:
        raise InputError(
            f"{path} holds {variable.name!r} as {array.dtype}{list(array.shape)}; the variable is "
            f"{variable.spec}."
        )
    return array
