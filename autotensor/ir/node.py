"""Nodes: the frozen, slotted, interned records of which trees are made.

Same class and same fields give the same object, so equality is `is`, hashes are addresses and memo tables are
exact:

    Binary(Op.ADD, x, y) is Binary(Op.ADD, x, y)

The table holds its nodes weakly: a tree lives as long as something holds its root. Derived facts (an
expression's dtype) are computed once, by `__derive__`, into extra slots that `_derived` names.

Each node holds the classes of all nodes below it, as bits (`_kinds`). So it takes one operation to know
whether an expression contains a load, and a search visits only parts in which there is something to find.

All work on nodes uses three functions, a hundred thousand times per kernel: construction, `children` and
`map_children`. Each class gets its own functions, written out for its fields, as dataclasses do
(`_functions`). Building a known node takes 0.4 µs, and a new one 1.2 µs; with generic code, 1.3 and 3.5 µs
(2026-11).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, ClassVar, TypeVar, dataclass_transform
from weakref import ref

# annotations of fields that never hold a node, and of fields that always do; other fields are checked
_PLAIN = {"int", "str", "bool", "float", "int | float | bool", "tuple[int, ...]"}
_PLAIN |= {"DType", "Op", "Cmp", "Neg", "ForKind", "Scope"}
_PLAIN |= {"Extents"}  # of a buffer: accesses do not refer to these nodes
_ALWAYS = {"Expr", "Stmt", "Var"}

# entries of a table before dead entries are removed; afterwards, twice the number that is left
FIRST_SWEEP = 4096
_numbers = count()  # numbers the classes of nodes; these numbers are the bits of `_kinds`
_kinds_known: dict[int, int] = {}  # one object for each set of classes, because nodes have few different sets
_lock = threading.Lock()  # held while entries are removed from a table; adding an entry is atomic


class NodeMeta(type):
    """Builds slotted classes from annotations and interns their instances."""

    _fields: tuple[str, ...]
    _classes: int  # bits of the class and of its subclasses

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> NodeMeta:
        annotations = {
            k: str(v)
            for k, v in space.get("__annotations__", {}).items()
            if not k.startswith("_") and "ClassVar" not in str(v)
        }
        defaults = {k: space.pop(k) for k in annotations if k in space}
        parent = next((b for b in bases if isinstance(b, NodeMeta)), None)
        first = () if parent is not None else ("__weakref__", "_free", "_kinds")
        space["__slots__"] = (*annotations, *space.get("_derived", ()), *first)
        cls = super().__new__(mcs, name, bases, space)
        cls._annotations = {**getattr(parent, "_annotations", {}), **annotations}  # type: ignore[attr-defined]
        cls._defaults = {**getattr(parent, "_defaults", {}), **defaults}  # type: ignore[attr-defined]
        cls._fields = tuple(cls._annotations)  # type: ignore[attr-defined]
        cls.__match_args__ = cls._fields  # type: ignore[attr-defined, misc]
        cls._classes = own = 1 << next(_numbers)
        for base in cls.__mro__[1:]:
            if isinstance(base, NodeMeta):
                base._classes |= own
        for function in ("__new__", "_children", "_mapped"):
            stub = _first_call(cls, own, function)
            setattr(cls, function, staticmethod(stub) if function == "__new__" else stub)
        return cls


def _first_call(cls: Any, own: int, function: str) -> Callable[..., Any]:
    """A function whose first call writes the three functions of the class.

    Writing them takes half of the time of importing the classes, and most programs need few of them.
    """

    def call(of: Any, *args: Any, **named: Any) -> Any:
        with _lock:
            if "_written" not in cls.__dict__:
                for name, made in _functions(cls, own).items():
                    setattr(cls, name, staticmethod(made) if name == "__new__" else made)
                cls._written = True
        return getattr(cls, function)(of, *args, **named)

    return call


def _functions(cls: Any, own: int) -> dict[str, Callable[..., Any]]:
    """`__new__`, `_children` and `_mapped` for the fields of a class."""
    fields, defaults = cls._fields, cls._defaults
    table: dict[Any, ref[Any]] = {}
    space: dict[str, Any] = {
        **{f"default_{f}": value for f, value in defaults.items()},
        **{f"set_{f}": getattr(cls, f).__set__ for f in fields},
        "known": table.get,
        "insert": _inserter(table),
        "make": object.__new__,
        "key_of": getattr(cls, "_key", None),
        "own_kind": own,
        "set_kinds": cls._kinds.__set__,
        "same": _kinds_known.setdefault,
        "mapped_tuple": _mapped_tuple,
    }
    given = ", ".join(f"{f}=default_{f}" if f in defaults else f for f in fields)
    values = "".join(f"{f}, " for f in fields)
    own_key = "Node" in globals() and cls._key is not Node._key
    code = [
        f"def __new__(cls{', ' if given else ''}{given}):",
        f"    key = key_of(({values}))" if own_key else f"    key = ({values})",
        "    at = known(key)",
        "    if at is not None:",
        "        self = at()",
        "        if self is not None:",
        "            return self",
        "    self = make(cls)",
        *(f"    set_{f}(self, {f})" for f in fields),
        *_kinds_code(cls._annotations),
        "    self.__derive__()",
        "    return insert(key, self)",
        *_children_code(cls._annotations),
        *_mapped_code(cls._annotations),
    ]
    space["Node"] = globals().get("Node", cls)
    exec("\n".join(code), space)
    return {name: space[name] for name in ("__new__", "_children", "_mapped")}


def _kinds_code(annotations: dict[str, str]) -> list[str]:
    """The classes of a new node and of all below it, as bits."""
    code = ["    kinds = own_kind"]
    for f, kind in annotations.items():
        if kind in _ALWAYS:
            code.append(f"    kinds |= {f}._kinds")
        elif kind not in _PLAIN:
            code += [
                f"    if isinstance({f}, Node):",
                f"        kinds |= {f}._kinds",
                f"    elif {f}.__class__ is tuple:",
                f"        for x in {f}:",
                "            if isinstance(x, Node):",
                "                kinds |= x._kinds",
            ]
    return [*code, "    set_kinds(self, same(kinds, kinds))"]


def _children_code(annotations: dict[str, str]) -> list[str]:
    code = ["def _children(self):", "    out = []"]
    for f, kind in annotations.items():
        if kind in _ALWAYS:
            code.append(f"    out.append(self.{f})")
        elif kind not in _PLAIN:
            code += [
                f"    v = self.{f}",
                "    if isinstance(v, Node):",
                "        out.append(v)",
                "    elif v.__class__ is tuple:",
                "        out += [x for x in v if isinstance(x, Node)]",
            ]
    return [*code, "    return out"]


def _mapped_code(annotations: dict[str, str]) -> list[str]:
    code = ["def _mapped(self, fn):"]
    changed = []
    for f, kind in annotations.items():
        if kind in _PLAIN:
            continue
        code.append(f"    {f} = self.{f}")
        if kind in _ALWAYS:
            code.append(f"    new_{f} = fn({f})")
        else:
            code += [
                f"    if isinstance({f}, Node):",
                f"        new_{f} = fn({f})",
                f"    elif {f}.__class__ is tuple:",
                f"        new_{f} = mapped_tuple({f}, fn)",
                "    else:",
                f"        new_{f} = {f}",
            ]
        changed.append(f)
    if not changed:
        return [*code, "    return self"]
    arguments = ", ".join(f"self.{f}" if kind in _PLAIN else f"new_{f}" for f, kind in annotations.items())
    return [
        *code,
        f"    if {' and '.join(f'new_{f} is {f}' for f in changed)}:",
        "        return self",
        f"    return self.__class__({arguments})",
    ]


def _mapped_tuple(values: tuple[Any, ...], fn: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The tuple with `fn` applied to the nodes in it; the same object when nothing changed."""
    new = tuple([fn(v) if isinstance(v, Node) else v for v in values])
    for a, b in zip(new, values, strict=True):
        if a is not b:
            return new
    return values


def _inserter(table: dict[Any, ref[Any]]) -> Callable[[Any, Any], Any]:
    """A function that adds a new node, or returns the node that another thread added first."""
    limit = FIRST_SWEEP

    def insert(key: Any, node: Any) -> Any:
        nonlocal limit
        mine = ref(node)
        while True:
            there = table.setdefault(key, mine)
            if there is mine:
                break
            found = there()
            if found is not None:
                return found
            with _lock:  # the entry outlived its node
                if table.get(key) is there:
                    del table[key]
        if len(table) > limit:
            with _lock:
                # copying the dict is atomic, but making a list of its items is not
                for k, r in table.copy().items():
                    if r() is None:
                        del table[k]
                limit = max(FIRST_SWEEP, 2 * len(table))
        return node

    return insert


@dataclass_transform(frozen_default=True, eq_default=False)
class Node(metaclass=NodeMeta):
    """Base of expressions, statements and buffers."""

    _derived: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def _key(args: tuple[Any, ...]) -> Any:
        """The key by which nodes are interned.

        A class whose fields hold raw numbers overrides this function.
        """
        return args

    def __derive__(self) -> None:
        """Checks the fields and fills the derived slots (through `object.__setattr__`)."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; build a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f) for f in type(self)._fields)

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        return self  # a node never changes, and equal nodes are one object

    def __str__(self) -> str:
        from autotensor.ir.printer import to_text  # the printer imports all nodes

        return to_text(self)

    def __repr__(self) -> str:
        first = str(self).split("\n", 1)[0]
        return f"<{type(self).__name__} {first if len(first) < 60 else first[:57] + '...'}>"

    def fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f) for f in type(self)._fields)


N = TypeVar("N", bound=Node)


def children(node: Node) -> list[Node]:
    """Direct sub-nodes, in the order of the fields; those in tuples, too."""
    return node._children()  # type: ignore[attr-defined, no-any-return]


def map_children(node: N, fn: Callable[[Any], Any]) -> N:
    """The node with `fn` applied to every direct sub-node; the same object when nothing changed."""
    return node._mapped(fn)  # type: ignore[attr-defined, no-any-return]
