"""Counts turns of phrase that make a sentence hard to read, in documents, docstrings, comments and messages.

python tests/kit/plain_words.py              counts by part of the repository
python tests/kit/plain_words.py PATTERN      the lines of one pattern, with their places
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATTERNS = {  # name → what counts; `*` is a word, and a sentence begins at the start, or behind . : or ;
    "begins with Of": r"(?:^|[.:;] )Of (?!course)",
    "begins with What": r"(?:^|[.:;] )(?:And )?What (?![^.]*\?)",
    "what as object": r"\b(?:of|for|with|from|by|on|to|in|than|is|are|all) what\b",
    "for as because": r"[,;:] for (?:so|it|they|there|that|nothing|no|these|those|then|this|he|who)\b",
    "is no": r"(?<![Tt]here )\b(?:is|are|was|were|be) no (?!more|longer|better|less|faster|slower|such)",
    "who for whoever": r"(?:^|[.:;,] )[Ww]ho \w+s\b|\bfor who\b",
    "old words": r"\b(?:had better|lest|askew|perhaps|in turns|aught|hitherto|thereof|whence|alike)\b",
    "beside": r"\bbeside\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "code as people": r"\b(?:told|asked|asks|heard|hears|knows|knew|wants|wanted|believes|believed|nobody)\b",
    "so do": r"\b[Ss]o (?:do|does|did|is|are|has|have|can|must) (?!not\b)\w+",
}
COMPILED = {name: re.compile(text) for name, text in PATTERNS.items()}
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"\bDESIGN(?:\.md)? ?D?\d|\bD\d\d? of DESIGN|(?<!'s )\bissue \d+\b|\bHOUSE(?:\.md)?\b")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of every paragraph, docstring, run of comments and message of a file."""
    text = path.read_text()
    if path.suffix == ".md":
        blank = FENCE.sub(lambda m: "\n" * m.group().count("\n"), text)
        line = 1
        for paragraph in re.split(r"\n(?=\n|[*|#-])", blank):
            yield line, " ".join(paragraph.split())
            line += paragraph.count("\n") + 1
        return
    yield from _docstrings_and_messages(ast.parse(text))
    yield from _comments(text)


def _docstrings_and_messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            if not node.value.isprintable() and ">>>" in node.value:
                yield node.lineno, " ".join(re.sub(r">>>.*", "", node.value).split())
            else:
                yield node.lineno, " ".join(node.value.split())


def _comments(text: str) -> Iterator[tuple[int, str]]:
    run: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if run and token.start[0] != last + 1:
            yield start, " ".join(run)
            run = []
        if not run:
            start = token.start[0]
        run.append(token.string.lstrip("#: ").strip())
        last = token.start[0]
    if run:
        yield start, " ".join(run)


def files() -> Iterator[Path]:
    """All that a reader meets: documents and the packages."""
    yield from (ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    yield from sorted((ROOT / "docs").glob("*.md"))
    for package in ("autotensor", "schedules", "tuning_db"):
        yield from sorted((ROOT / package).rglob("*.py"))


def part(path: Path) -> str:
    """The part of the repository that a file counts with: docs, or a package's folder."""
    words = path.relative_to(ROOT).parts
    if path.suffix == ".md":
        return "docs"
    return "/".join(words[:2]) if len(words) > 2 else words[0]


@cache
def everything() -> tuple[tuple[Path, int, str], ...]:
    """File, line number and text of all prose."""
    return tuple((path, line, text) for path in files() for line, text in prose(path))


def places(pattern: re.Pattern[str]) -> Iterator[tuple[Path, int, str]]:
    """Where a pattern stands."""
    for path, line, text in everything():
        for match in pattern.finditer(text):
            begin = max(0, match.start() - 60)
            yield path, line, text[begin : match.end() + 60]


def counts() -> dict[str, Counter[str]]:
    """Part of the repository → pattern → how often."""
    found: dict[str, Counter[str]] = {}
    for path, _, text in everything():
        mine = found.setdefault(part(path), Counter())
        mine["words"] += len(text.split())
        for name, pattern in COMPILED.items():
            mine[name] += len(pattern.findall(text))
    return found


def main(words: list[str]) -> None:
    if words:
        for path, line, text in places(COMPILED[words[0]]):
            print(f"{path.relative_to(ROOT)}:{line}: {text}")
        return
    found = counts()
    total: Counter[str] = sum(found.values(), Counter())
    print(f"{'':24}{'words':>8}  " + "  ".join(PATTERNS))
    for name, mine in [*sorted(found.items()), ("all", total)]:
        cells = "  ".join(f"{mine[p]:>{len(p)}}" for p in PATTERNS)
        print(f"{name:24}{mine['words']:>8}  {cells}")


if __name__ == "__main__":
    main(sys.argv[1:])
