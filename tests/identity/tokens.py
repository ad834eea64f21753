"""Counts the Python tokens of the packages, outside docstrings, comments and the imports of modules.

    python tests/identity/tokens.py [COMMIT …]      of the work tree, or of commits

    autotensor/ir    31,204
    …
    all             530,112

Layout does not count: no line ends, no indentation. Imports inside functions do: 534,030 at 15fa5b3.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("autotensor", "schedules", "tuning_db")
ROOT = Path(__file__).parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT = (
    tokenize.ENCODING,
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def count(source: str) -> int:
    """Tokens of a module's text.

    >>> count("import os\\n\\ndef f(x):  # twice\\n    'Doc.'\\n    return x + x\\n")
    10
    """
    module = ast.parse(source)
    imports = [n for n in module.body if isinstance(n, ast.Import | ast.ImportFrom)]
    docstrings = [n.body[0] for n in ast.walk(module) if isinstance(n, DOCUMENTED) and ast.get_docstring(n)]
    left_out = {line for n in (*imports, *docstrings) for line in range(n.lineno, (n.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(t.type not in LAYOUT and t.start[0] not in left_out for t in tokens)


def sources(commit: str | None) -> Iterator[tuple[str, str]]:
    """Path and text of each Python file, of the work tree or of a commit."""
    git = ("git", "-C", str(ROOT))
    listing = ("ls-files", "--") if commit is None else ("ls-tree", "-r", "--name-only", commit)
    names = subprocess.run([*git, *listing, *PACKAGES], capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if name.endswith(".py"):
            if commit is None:
                yield name, (ROOT / name).read_text()
            else:
                shown = ["cat-file", "blob", f"{commit}:{name}"]
                yield name, subprocess.run([*git, *shown], capture_output=True, text=True, check=True).stdout


def by_room(commit: str | None) -> Counter[str]:
    """Tokens of each folder directly below a package; of files in a package itself under the package."""
    rooms: Counter[str] = Counter()
    for name, text in sources(commit):
        parts = name.split("/")[:-1][:2]
        rooms["/".join(parts)] += count(text)
    return rooms


if __name__ == "__main__":
    for commit in sys.argv[1:] or [None]:
        rooms = by_room(commit)
        rows = [*sorted(rooms.items()), ("all" if commit is None else f"all of {commit}", rooms.total())]
        print("\n".join(f"{room:28} {tokens:>9,}" for room, tokens in rows))
