"""Runs the code of one page and compares what it prints with what the page says it prints.

    python tests/docs/run_page.py docs/numerics.md             exit code 1 and a difference if it is wrong
    python tests/docs/run_page.py docs/numerics.md --update    rewrites the page's output blocks

```python blocks run in order, in one namespace; an ```output block behind one is what it prints. In an output
block a line `...` stands for any lines, and such a block is never rewritten. Other fences (```text, ```bash)
are not run; neither is ```python skip, for what takes minutes and is run as an example. `trials=…` becomes
TRIALS: a page may show an honest budget without the tests paying for it.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRIALS = 3
ANYTHING = "..."


@dataclass(frozen=True, slots=True)
class Block:
    """One fence: its language, its text, and the line (from 0) of its first line of text."""

    language: str
    text: str
    line: int

    @property
    def end(self) -> int:
        return self.line + len(self.text.splitlines())


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page."""
    language, start, lines = None, 0, page.splitlines()
    for n, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if language is None:
            language, start = line[3:].strip(), n + 1
        else:
            yield Block(language, "\n".join(lines[start:n]), start)
            language = None


def matches(wanted: str, got: str) -> bool:
    """Whether the output is as shown; a line `...` stands for any lines."""
    parts = [re.escape(line) if line.strip() != ANYTHING else None for line in wanted.strip().splitlines()]
    pattern = "".join(r"(?:[^\n]*\n)*" if p is None else p + r"[ ]*\n" for p in parts)
    lines = "".join(line.rstrip() + "\n" for line in got.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def run(code: str, name: str, line: int, namespace: dict[str, Any]) -> str:
    """The output of a block."""
    code = re.sub(r"\btrials=\d+", f"trials={TRIALS}", code)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * line + code, name, "exec", dont_inherit=True), namespace)
    return out.getvalue()


def check(path: Path, update: bool) -> list[str]:
    """The differences of a page; with `update`, its output blocks are rewritten instead."""
    page = path.read_text()
    lines, found = page.splitlines(), list(blocks(page))
    module = sys.modules["page"] = types.ModuleType("page")  # dataclasses look their module up
    namespace = module.__dict__
    wrong: list[str] = []
    new: list[tuple[Block, str]] = []
    for n, block in enumerate(found):
        if block.language != "python":
            continue
        printed = run(block.text, str(path), block.line, namespace)
        shown = found[n + 1] if n + 1 < len(found) and found[n + 1].language == "output" else None
        if shown is None:
            continue
        if ANYTHING not in shown.text.splitlines():
            new.append((shown, printed.rstrip()))
        if not matches(shown.text, printed):
            wrong.append("\n".join([f"{path}:{shown.line + 1}", *_difference(shown.text, printed)]))
    if update:
        for block, text in reversed(new):
            lines[block.line : block.end] = text.splitlines()
        path.write_text("\n".join(lines) + "\n")
        return []
    return wrong


def _difference(shown: str, printed: str) -> Iterator[str]:
    return difflib.unified_diff(shown.splitlines(), printed.splitlines(), "page", "printed", lineterm="")


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]), "--update" in sys.argv[2:])
    print("\n\n".join(problems))
    sys.exit(bool(problems))
