"""Nodes: frozen, slotted, interned records that a tree is made of.

Same class and same fields give the same object, so equality is `is`, hashes are addresses and memo tables are
exact:

    Binary(Op.ADD, x, y) is Binary(Op.ADD, x, y)

The table holds its nodes weakly: a tree lives as long as somebody holds its root. Derived facts (an
expression's dtype) are computed once, by `__derive__`, into extra slots named in `_derived`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import WeakValueDictionary


class NodeMeta(type):
    """Builds slotted classes from annotations and interns their instances."""

    _fields: tuple[str, ...]
    _table: WeakValueDictionary[Any, Any]
    _setters: tuple[Callable[[Any, Any], None], ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> NodeMeta:
        own = [
            k
            for k, v in space.get("__annotations__", {}).items()
            if not k.startswith("_") and "ClassVar" not in str(v)
        ]
        defaults = {k: space.pop(k) for k in own if k in space}
        derived = tuple(space.get("_derived", ()))
        inherited = next((b._fields for b in bases if isinstance(b, NodeMeta) and b._fields), ())
        fields = (*inherited, *own)
        weak = () if any(isinstance(b, NodeMeta) for b in bases) else ("__weakref__",)
        space["__slots__"] = (*own, *derived, *weak)
        cls = super().__new__(mcs, name, bases, space)
        cls._fields = fields
        cls._defaults = defaults  # type: ignore[attr-defined]
        cls.__match_args__ = fields  # type: ignore[attr-defined, misc]
        cls._table = WeakValueDictionary()
        cls._setters = tuple(getattr(cls, f).__set__ for f in fields)
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(cls._fields):
            args = cls._complete(args, kwargs)
        key = cls._key(args)  # type: ignore[attr-defined]
        found = cls._table.get(key)
        if found is not None:
            return found
        self: Any = object.__new__(cls)  # type: ignore[arg-type]  # cls is a class of nodes
        for setter, value in zip(cls._setters, args, strict=True):
            setter(self, value)
        self.__derive__()
        return cls._table.setdefault(key, self)

    def _complete(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        values = {**cls._defaults, **dict(zip(cls._fields, args, strict=False)), **kwargs}  # type: ignore[attr-defined]
        if len(args) > len(cls._fields) or set(values) != set(cls._fields):
            raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
        return tuple(values[f] for f in cls._fields)


@dataclass_transform(frozen_default=True, eq_default=False)
class Node(metaclass=NodeMeta):
    """Base of expressions, statements and buffers."""

    _derived: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        """What makes two nodes the same; a node whose fields hold raw numbers overrides it."""
        return args

    def __derive__(self) -> None:
        """Checks the fields and fills the derived slots (through `object.__setattr__`)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; build a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in type(self)._fields)

    def __str__(self) -> str:
        from autotensor.ir.printer import to_text  # the printer knows all nodes

        return to_text(self)

    def __repr__(self) -> str:
        first = str(self).split("\n", 1)[0]
        return f"<{type(self).__name__} {first if len(first) < 60 else first[:57] + '...'}>"

    def fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f) for f in type(self)._fields)


N = TypeVar("N", bound=Node)


def children(node: Node) -> Iterator[Node]:
    """Direct sub-nodes, in field order; those in tuples too."""
    for value in node.fields():
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Node))


def map_children(node: N, fn: Callable[[Any], Any]) -> N:
    """The node with `fn` applied to every direct sub-node; the same object when nothing changed."""
    changed = False
    out = []
    for value in node.fields():
        if isinstance(value, Node):
            new = fn(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            new = tuple(fn(v) if isinstance(v, Node) else v for v in value)
            if all(a is b for a, b in zip(new, value, strict=True)):
                new = value
        else:
            new = value
        changed = changed or new is not value
        out.append(new)
    return type(node)(*out) if changed else node
