"""Formulas: how numbers of a candidate depend on its decisions. They are recorded once, evaluated for many.

    sheet = Sheet(options, choices)         options of each hole, and the choices of a first population
    a = sheet.hole(0, 1) * 4 + 1            ──recorded──▶ a Formula, in place of an array
    sheet.plan((a,)).evaluate(choices)      ──NumPy──▶ its values [candidates]

A formula of few decisions has few values: these are put into a table and looked up. Nothing is computed
twice, and nothing is computed that is not needed. The results are the same as those of the same operations on
arrays.

Operations on Formulas are ufuncs, `np.where`, `np.clip`, and functions that `elementwise` marks. If code
branches for a whole population, `any_of` decides the branch by the population that is used for recording. The
sheet keeps the answer as a condition under which its formulas are right.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])

TABLE = 1024  # a formula with more values than this is computed instead of tabulated


class NotRecorded(Exception):
    """An operation on a Formula that cannot be recorded."""


class Formula:
    """A number of a candidate, as a function of the candidate's decisions."""

    __slots__ = ("holes", "number", "sheet")

    def __init__(self, sheet: Sheet, number: int, holes: int) -> None:
        """holes: the holes that the formula depends on, one bit each."""
        self.sheet, self.number, self.holes = sheet, number, holes

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **options: Any) -> Any:
        return self.sheet.record(function, args) if method == "__call__" and not options else NotImplemented

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        known = (function is np.where or function is np.clip) and not options
        return self.sheet.record(function, args) if known else NotImplemented

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise NotRecorded("formulas are not arrays")

    def __bool__(self) -> NoReturn:
        raise NotRecorded("a formula is neither true nor false")

    __hash__ = None  # type: ignore[assignment]


def _defined(name: str, function: Any) -> None:
    setattr(Formula, f"__{name}__", lambda a, b: a.sheet.record(function, (a, b)))


def _defined_alone(name: str, function: Any) -> None:
    setattr(Formula, f"__{name}__", lambda a: a.sheet.record(function, (a,)))


def _reflected(name: str, function: Any) -> None:
    setattr(Formula, f"__r{name}__", lambda a, b: a.sheet.record(function, (b, a)))


for _name, _function in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": operator.pow,  # arrays compute some exponents in special ways
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "rshift": np.right_shift,
}.items():
    _defined(_name, _function)
    _reflected(_name, _function)
for _name, _function in {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "getitem": operator.getitem,  # takes one row of a result with several rows
}.items():
    _defined(_name, _function)
_defined_alone("neg", np.negative)
_defined_alone("abs", np.absolute)


def elementwise(function: F) -> F:
    """Marks a function of numbers as one operation to record. Each row of its result must depend only on the
    same row of its arguments. The result may have several numbers for each candidate [numbers, candidates].
    """

    @wraps(function)
    def marked(*args: Any) -> Any:
        for a in args:
            if type(a) is Formula:
                return a.sheet.record(function, args)
        return function(*args)

    return cast(F, marked)


def any_of(truth: Any) -> bool:
    """Whether `truth` holds for any candidate."""
    if isinstance(truth, bool):
        return truth
    return truth.sheet.any_of(truth) if type(truth) is Formula else bool(np.any(truth))


class _Step(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]  # Formulas and plain numbers
    holes: int


class Sheet:
    """The formulas of one sketch, each with a number."""

    def __init__(self, options: Sequence[Ints], rows: Ints) -> None:
        """options: the options of each hole [options, components]. rows: the choices of the population that
        is used for recording [rows, holes]. `any_of` answers for these rows.
        """
        self.options, self.rows = tuple(options), rows
        # answers of `any_of` that may differ for other populations
        self.conditions: list[tuple[Formula, bool]] = []
        self.steps: list[_Step] = []
        self._known: dict[tuple[Any, ...], Formula] = {}
        self._said: dict[int, bool] = {}
        self._tables: dict[int, Array] = {}
        self._sizes = {0: 1} | {1 << n: len(o) for n, o in enumerate(options)}
        self._places: dict[tuple[int, int], Ints] = {}

    def hole(self, hole: int, component: int) -> Formula:
        """A component of the option that is chosen for a hole."""
        return self._new((hole, component), _Step(_column, (hole, component), 1 << hole))

    def record(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Formula:
        """The formula of a function of other formulas and plain numbers."""
        key: list[Any] = [function]
        for a in args:
            kind = type(a)
            if kind is Formula:
                key.append(a.number)
            elif kind is int or kind is float or kind is bool:
                key.append((kind, a))
            else:
                return self.record(function, tuple(b if type(b) is Formula else _plain(b) for b in args))
        found = self._known.get(tuple(key))
        if found is not None:
            return found
        same = _unchanged(function, args)
        if same is not None:
            self._known[tuple(key)] = same
            return same
        holes = 0
        for a in args:
            if type(a) is Formula:
                holes |= a.holes
        return self._new(tuple(key), _Step(function, args, holes))

    def _new(self, key: tuple[Any, ...], step: _Step) -> Formula:
        if key not in self._known:
            self._known[key] = Formula(self, len(self.steps), step.holes)
            self.steps.append(step)
        return self._known[key]

    def any_of(self, truth: Formula) -> bool:
        """Whether `truth` holds for any of the rows used for recording."""
        if truth.number not in self._said:
            answer = self._always(truth)
            if answer is None:
                (values,) = self.plan((truth,)).evaluate(self.rows)
                answer = bool(np.any(values))
                self.conditions.append((truth, answer))
            self._said[truth.number] = answer
        return self._said[truth.number]

    def _always(self, truth: Formula) -> bool | None:
        """The answer, if it is the same for all candidates; None if it may differ, or is not known."""
        if not self.is_tabulated(truth.holes):
            return None
        table = self.table(truth)
        return True if table.all() else None if table.any() else False

    def plan(self, wanted: Sequence[Any]) -> Plan:
        """A plan for evaluating these formulas and plain numbers."""
        return Plan(self, wanted)

    def done(self) -> None:
        """Frees memory that only recording and planning need."""
        for kept in (self._tables, self._known, self._places):
            kept.clear()
        self.steps.clear()
        self.rows = self.rows[:0]

    def size(self, holes: int) -> int:
        """The number of different decisions for these holes."""
        found = self._sizes.get(holes)
        if found is None:
            last = 1 << (holes.bit_length() - 1)
            found = self._sizes[holes] = self.size(holes & ~last) * self._sizes[last]
        return found

    def is_tabulated(self, holes: int) -> bool:
        return self.size(holes) <= TABLE or holes & (holes - 1) == 0

    def table(self, formula: Formula) -> Array:
        """The formula's values for all decisions of its holes, in order; the last hole changes fastest."""
        pending = [formula]
        while pending:
            f = pending[-1]
            if f.number in self._tables:
                pending.pop()
                continue
            step = self.steps[f.number]
            missing = [a for a in step.args if type(a) is Formula and a.number not in self._tables]
            if missing:
                pending += missing
                continue
            self._tables[f.number] = self._tabulated(step)
        return self._tables[formula.number]

    def _tabulated(self, step: _Step) -> Array:
        if step.function is _column:
            hole, component = step.args
            return np.ascontiguousarray(self.options[hole][:, component])
        values = [self._widened(a, step.holes) if type(a) is Formula else a for a in step.args]
        found = np.asarray(step.function(*values))
        size = self.size(step.holes)
        if found.shape[-1:] == (size,):
            return found
        return np.ascontiguousarray(np.broadcast_to(found, (*found.shape[:-1], size)))

    def _widened(self, f: Formula, holes: int) -> Array:
        """The table of a formula, repeated for more holes than its own."""
        table = self._tables[f.number]
        if f.holes == holes:
            return table
        places = self._places.get((f.holes, holes))
        if places is None:
            grid = np.indices([len(self.options[h]) for h in _bits(holes)]).reshape(len(_bits(holes)), -1)
            places = self.numbered(f.holes, dict(zip(_bits(holes), grid, strict=True)))
            self._places[f.holes, holes] = places
        return table.take(places, axis=-1)

    def numbered(self, holes: int, choices: Any) -> Ints:
        """The position of a decision in tables of these holes. choices: each hole's option, as an index."""
        first, *others = _bits(holes)
        at: Ints = choices[first]
        for h in others:
            at = at * len(self.options[h]) + choices[h]
        return at


class Plan:
    """Formulas as a list of look-ups and operations, in order."""

    def __init__(self, sheet: Sheet, wanted: Sequence[Any]) -> None:
        self._number = sheet.numbered
        # holes, [formulas, decisions], slot of the first of these formulas
        self._tables: list[tuple[int, Array, int]] = []
        self._plain: list[Any] = []
        # function, slots of its arguments, slot of its result, slots that are not needed afterwards
        self._steps: list[tuple[Callable[..., Any], tuple[int, ...], int, tuple[int, ...]]] = []
        reached = _reached(sheet, wanted)
        slots: dict[Any, int] = {}  # index in the list of values, for formulas and plain numbers
        self._look_up(sheet, [f for f in reached if sheet.is_tabulated(f.holes)], slots)
        computed = [f for f in reached if f.number not in slots]
        self._before = len(slots)  # number of slots for look-ups
        for f in computed:
            for a in sheet.steps[f.number].args:
                if type(a) is not Formula and (type(a), a) not in slots:
                    slots[type(a), a] = len(slots)
                    self._plain.append(a)
        for f in computed:
            slots[f.number] = len(slots)
        self._wanted = [(slots[f.number], None) if type(f) is Formula else (-1, f) for f in wanted]
        needed = {slot for slot, _ in self._wanted}
        for f in reversed(computed):
            step, out = sheet.steps[f.number], slots[f.number]
            args = tuple(slots[a.number if type(a) is Formula else (type(a), a)] for a in step.args)
            over = tuple({*args} - needed)
            needed.update(args)
            self._steps.append((step.function, args, out, over))
        self._steps.reverse()
        self._size = len(slots)

    def _look_up(self, sheet: Sheet, formulas: Iterable[Formula], slots: dict[Any, int]) -> None:
        """Stacks the tables that depend on the same holes, so that one look-up serves all of them."""
        alike: dict[Any, list[Formula]] = {}
        for f in formulas:
            table = sheet.table(f)
            alike.setdefault((f.holes, table.dtype, table.shape), []).append(f)
        for (holes, *_), same in alike.items():
            self._tables.append((holes, np.stack([sheet.table(f) for f in same]), len(slots)))
            for f in same:
                slots[f.number] = len(slots)

    def evaluate(self, choices: Ints) -> list[Any]:
        """The values of the formulas [rows each], and the plain numbers. choices: [rows, holes]."""
        values: list[Any] = [None] * self._size
        columns = np.ascontiguousarray(choices.T)
        for holes, tables, first in self._tables:
            values[first : first + len(tables)] = tables.take(self._number(holes, columns), axis=-1)
        values[self._before : self._before + len(self._plain)] = self._plain
        for function, args, out, over in self._steps:
            values[out] = function(*[values[a] for a in args])
            for slot in over:
                values[slot] = None
        return [plain if slot < 0 else values[slot] for slot, plain in self._wanted]


def _reached(sheet: Sheet, wanted: Sequence[Any]) -> list[Formula]:
    """These formulas and all formulas that they are computed from, in the order of recording."""
    found: dict[int, Formula] = {}
    pending = [f for f in wanted if type(f) is Formula]
    while pending:
        f = pending.pop()
        if f.number not in found:
            found[f.number] = f
            if not sheet.is_tabulated(f.holes):
                pending += [a for a in sheet.steps[f.number].args if type(a) is Formula]
    return [found[n] for n in sorted(found)]


def _bits(holes: int) -> list[int]:
    return [n for n in range(holes.bit_length()) if holes >> n & 1]


def _column(hole: int, component: int) -> NoReturn:
    """Stands for a component of an option. It is never called, because components are looked up."""
    raise NotRecorded(f"component {component} of hole {hole} is looked up")


def _plain(number: Any) -> Any:
    """A plain number for a value that is the same for all candidates."""
    if type(number) in (int, float, bool):
        return number
    if isinstance(number, np.generic) or (isinstance(number, np.ndarray) and number.size == 1):
        return number.item()
    raise NotRecorded(f"{type(number).__name__} among formulas")


def _unchanged(function: Any, args: tuple[Any, ...]) -> Formula | None:
    """The formula that adding 0 or multiplying by 1 (in integers) leaves unchanged, else None."""
    if function is np.multiply or function is np.add:
        nothing = 1 if function is np.multiply else 0
        for a, b in (args, args[::-1]):
            if type(b) is int and b == nothing and type(a) is Formula:
                return a
    elif function is np.subtract and type(args[1]) is int and args[1] == 0:
        return cast(Formula, args[0])
    return None


__all__ = ["Formula", "NotRecorded", "Plan", "Sheet", "any_of", "elementwise"]
