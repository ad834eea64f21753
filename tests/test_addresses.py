"""Where things lie: few files in a folder, short files and functions, one class of a name, no circles.

Each exception is a row of a table here, with its reason. A row that is no longer needed is removed from its
table; only folders may be smaller than allowed.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("autotensor", "schedules", "tuning_db", "benchmarks")
MOST_FILES = 22  # Python files in a folder
MOST_LINES = 80  # of a function
LONGEST = 500  # lines of a file; a longer one holds two ideas

LARGE_FOLDERS = {  # that may grow: each file is an entry of a table
    "autotensor/api": "what users call, one subject in a file; the package's head lists them",
    "autotensor/frontends/onnx/families": "converters of ONNX's operators, one family in a file",
    "autotensor/frontends/torch/families": "converters of ATen's operators, one family in a file",
    "autotensor/models": "one model in a file; the package's head lists them",
    "autotensor/operators": "operators, one family in a file",
    "autotensor/schedule/primitives": "one primitive in a file",
    "benchmarks": "one command in a file; its README lists them",
    "examples/decks": "one slide of a deck in a file",
    "tests/kit": "what tests share, one kind of computation or tool in a file",
}

# A record of the store and the table that holds it: two views of one thing, and every reader of the log
# knows both by that name.
RECORD_FILES = (
    ("tuning_db/models.py", "tuning_db/records.py"),
    ("tuning_db/answers.py", "tuning_db/models.py"),
)
RECORDS = (
    "Calibration",
    "Code",
    "Environment",
    "Host",
    "Intent",
    "Machine",
    "Opening",
    "Parent",
    "Round",
    "Run",
    "Session",
    "Sketch",
    "Standing",
    "TaskCount",
    "Workload",
)

# Imports that go back, so that files import one another: without them, there are no circles. Late imports,
# and those for type checkers, count.
BACK = {
    ("autotensor.ir.node", "autotensor.ir.printer"): "every node prints itself",
    ("autotensor.ir.func", "autotensor.ir.printer"): "as do functions and programs",
    ("autotensor.ir.arithmetic", "autotensor.ir.expr"): "operators of what stands for an expression make one",
    ("autotensor.ir.laws.integer_laws", "autotensor.ir.simplify"): "what applies the laws says what is known",
    ("autotensor.ir.laws.logic_laws", "autotensor.ir.simplify"): "the same",
    ("autotensor.ir.laws.vector_laws", "autotensor.ir.simplify"): "the same",
    ("autotensor.runtime.function", "autotensor.runtime.saved_model"): "a pickle names what opens it",
    (
        "autotensor.graph.ir",
        "autotensor.graph.explain",
    ): "graph.explain() shows what the compiler does with it",
    (
        "autotensor.frontends.onnx.node_call",
        "autotensor.frontends.onnx.importer",
    ): "a node hands on the importer that calls it",
    (
        "autotensor.flow.loops",
        "autotensor.flow.flow_to_graph",
    ): "gradients of a loop are lowered by what lowers the run",
    (
        "autotensor.imperative.engine",
        "autotensor.imperative.tensor",
    ): "its tensors are only kept, and given back",
    ("autotensor.imperative.engine", "autotensor.imperative.traced_functions"): "the same of its traces",
}

# Imports by name that go up a floor, which the import contract does not see.
UPWARD = {
    ("autotensor.te", "autotensor.schedule.schedule"): "te.create_schedule, where TVM's users look for it",
    ("autotensor.schedule.schedule", "autotensor.compiler"): "print(schedule) shows loops, which are lowered",
    ("autotensor.codegen.dot_instructions", "autotensor.instructions"): "the table is filled by te functions",
}


# Rooms of the benchmarks, which the import contract cannot read: each imports only those behind it.
BENCHMARKS = ("contests", "jobs", "replays", "suite", "nets", "peers")
KNOWN_BEFORE = {
    ("jobs.metaschedule", "contests.contest"): "it is run as contestants are",
    ("replays.measured_space", "contests.results"): "the JSON of tables keeps spaces, too",
    ("replays.winners", "contests.results"): "the same",
}


@dataclass(frozen=True)
class Module:
    """One file, parsed."""

    name: str  # as it is imported
    path: str  # from the root, for people
    tree: ast.Module
    is_package: bool

    @property
    def package(self) -> str:
        """The package whose class names must differ: a floor's."""
        first, *rest = Path(self.path).with_suffix("").parts
        return f"{first}.{rest[0]}" if first == "autotensor" else first


def modules(root: Path, packages: Iterable[str] = SOURCES) -> tuple[Module, ...]:
    found = []
    for package in packages:
        for file in sorted((root / package).rglob("*.py")):
            path = file.relative_to(root)
            parts = path.with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts).removeprefix(
                "benchmarks."
            )  # a folder of scripts
            found.append(Module(name, str(path), ast.parse(file.read_text()), is_package))
    return tuple(found)


@cache
def ours() -> tuple[Module, ...]:
    return modules(ROOT)


def large_folders(root: Path, packages: Iterable[str]) -> set[str]:
    """Folders with more Python files than MOST_FILES."""
    counts = collections.Counter(
        str(file.parent.relative_to(root)) for package in packages for file in (root / package).rglob("*.py")
    )
    return {folder for folder, count in counts.items() if count > MOST_FILES}


def long_files(root: Path, packages: Iterable[str]) -> set[str]:
    """Python files with more lines than LONGEST."""
    files = (file for package in packages for file in (root / package).rglob("*.py"))
    return {str(f.relative_to(root)) for f in files if f.read_text().count("\n") > LONGEST}


def shared_names(found: Iterable[Module]) -> dict[tuple[str, str], list[str]]:
    """(package, class) → where, for names that several classes of a package have."""
    places = collections.defaultdict(list)
    for m in found:
        for node in ast.walk(m.tree):
            if isinstance(node, ast.ClassDef):
                places[m.package, node.name].append(f"{m.path}:{node.lineno}")
    return {key: where for key, where in places.items() if len(where) > 1}


def long_functions(found: Iterable[Module]) -> list[str]:
    return [
        f"{m.path}:{node.lineno} {node.name}: {lines} lines"
        for m in found
        for node in ast.walk(m.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES
    ]


def imports(m: Module, known: Mapping[str, Module]) -> Iterator[str]:
    """Modules among `known` that a file names in imports: late ones, and those of type checkers, too."""
    for node in ast.walk(m.tree):
        match node:
            case ast.Import(names):
                yield from (a.name for a in names if a.name in known)
            case ast.ImportFrom(module, names, level):
                home = m.name.split(".") if m.is_package else m.name.split(".")[:-1]
                base = (
                    ".".join([*home[: len(home) + 1 - level], *filter(None, [module])]) if level else module
                )
                for a in names:
                    yield from [x for x in (f"{base}.{a.name}", base) if x in known][:1]
    yield from imports_by_name(m, known)


def imports_by_name(m: Module, known: Mapping[str, Module]) -> Iterator[str]:
    """The same of `import_module("…")`."""
    for node in ast.walk(m.tree):
        match node:
            case ast.Call(
                ast.Name("import_module") | ast.Attribute(attr="import_module"), [ast.Constant(name)]
            ):
                if name in known:
                    yield name


def circles(
    found: Iterable[Module], without: Container[tuple[str, str]] = frozenset()
) -> set[frozenset[str]]:
    """Groups of files that all need one another, without some imports. Source: Tarjan (SIAM J. Comput.
    1972)."""
    known = {m.name: m for m in found}
    needs = {
        name: sorted(x for x in {*imports(m, known)} - {name} if (name, x) not in without)
        for name, m in known.items()
    }
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    rings: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in needs[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            at = stack.index(name)
            ring = frozenset(stack[at:])
            del stack[at:]
            if len(ring) > 1:
                rings.add(ring)

    for name in needs:
        if name not in number:
            visit(name)
    return rings


class TestOurs:
    def test_no_folder_is_large(self) -> None:
        found = large_folders(ROOT, (*SOURCES, "tests", "examples"))
        assert found <= {*LARGE_FOLDERS}, "give the files rooms, or the table a row with the reason"

    def test_no_file_is_long(self) -> None:
        assert long_files(ROOT, (*SOURCES, "tests", "examples")) == set(), "divide the file"

    def test_no_class_name_is_used_twice_in_a_package(self) -> None:
        twice = shared_names(ours())
        records = {k for k, places in twice.items() if tuple(p.split(":")[0] for p in places) in RECORD_FILES}
        assert records == {("tuning_db", name) for name in RECORDS}, "a record and its table, no other"
        assert {key: where for key, where in twice.items() if key not in records} == {}

    def test_every_function_fits_on_a_screen(self) -> None:
        assert long_functions(ours()) == []

    def test_there_are_no_circles_but_with_a_reason(self) -> None:
        assert circles(ours(), BACK) == set()
        rings = circles(ours())
        assert [pair for pair in BACK if not any(ring.issuperset(pair) for ring in rings)] == []

    def test_imports_by_name_have_a_reason(self) -> None:
        known = {m.name: m for m in ours()}
        found = {(m.name, name) for m in ours() for name in imports_by_name(m, known)}
        assert {(a, b) for a, b in found if a != "autotensor"} == {*UPWARD}

    def test_rooms_of_the_benchmarks(self) -> None:
        known = {m.name: m for m in ours() if m.package == "benchmarks"}
        order = {room: n for n, room in enumerate(BENCHMARKS)}
        back = {
            (name, other)
            for name, m in known.items()
            for other in imports(m, known)
            if order.get(name.split(".")[0], -1) > order.get(other.split(".")[0], -1)
        }
        assert back == {*KNOWN_BEFORE}


class TestPlanted:
    """The tests above find what they are for."""

    def plant(self, root: Path, **files: str) -> tuple[Module, ...]:
        for name, text in files.items():
            file = root / "house" / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        return modules(root, ["house"])

    def test_a_large_folder(self, tmp_path: Path) -> None:
        self.plant(tmp_path, **{f"m{n}": "" for n in range(MOST_FILES)})
        assert large_folders(tmp_path, ["house"]) == set()
        self.plant(tmp_path, one_more="")
        assert large_folders(tmp_path, ["house"]) == {"house"}

    def test_a_long_file(self, tmp_path: Path) -> None:
        self.plant(tmp_path, a="#\n" * LONGEST, b="#\n" * (LONGEST + 1))
        assert long_files(tmp_path, ["house"]) == {"house/b.py"}

    def test_two_classes_of_one_name(self, tmp_path: Path) -> None:
        found = self.plant(
            tmp_path, a="class Row: ...", b="def f():\n    class Row: ...", c="class Table: ..."
        )
        assert shared_names(found) == {("house", "Row"): ["house/a.py:1", "house/b.py:2"]}

    def test_a_long_function(self, tmp_path: Path) -> None:
        lines = "    pass\n"
        found = self.plant(
            tmp_path, a="def f():\n" + lines * MOST_LINES, b="def g():\n" + lines * (MOST_LINES - 1)
        )
        assert long_functions(found) == [f"house/a.py:1 f: {MOST_LINES + 1} lines"]

    def test_circles(self, tmp_path: Path) -> None:
        found = self.plant(
            tmp_path,
            __init__="",
            a="from house import b",
            b="def late():\n    from .c import f",
            c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.a",
            d="import importlib\nimportlib.import_module('house.e')",
            e="from house.d import x",
            f="from house import a, d",
        )
        one, other = frozenset({"house.a", "house.b", "house.c"}), frozenset({"house.d", "house.e"})
        assert circles(found) == {one, other}
        assert circles(found, {("house.c", "house.a")}) == {other}
