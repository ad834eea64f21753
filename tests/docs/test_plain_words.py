"""Plain words: the turns of phrase that `kit/plain_words.py` counts become fewer, never more."""

from __future__ import annotations

from collections import Counter

import plain_words
import pytest
from plain_words import COMPILED, ELSEWHERE, counts, places

MOST = {  # pattern → how often it stands in documents and packages; lower it when you rewrite some
    "begins with Of": 1,
    "begins with What": 0,
    "what as object": 0,
    "for as because": 0,
    "is no": 0,
    "who for whoever": 0,
    "old words": 1,
    "beside": 9,
    "mend": 0,
    "code as people": 47,
    "so do": 0,
}


def test_hard_phrases_grow_fewer() -> None:
    found: Counter[str] = sum(counts().values(), Counter())
    grown = {name: (found[name], most) for name, most in MOST.items() if found[name] > most}
    assert not grown, f"pattern: (now, at most); `python {plain_words.__file__} PATTERN` lists the places"
    assert MOST.keys() == COMPILED.keys()


def test_nothing_refers_to_documents_that_a_reader_does_not_have() -> None:
    assert not [f"{path}:{line}: {text}" for path, line, text in places(ELSEWHERE)]


@pytest.mark.parametrize(
    ("pattern", "hard", "plain"),
    [
        ("begins with Of", "Here. Of two regions one goes", "Here. Of course one of two regions goes"),
        ("begins with What", "What others disturbed is retaken", "A file says what others disturbed"),
        ("for as because", "wide tiles, for so do products", "wide tiles, for example"),
        ("is no", "a scope is no name", "there is no name"),
        ("who for whoever", "late; who loads it waits", "the process who is late"),
        ("code as people", "nobody reads it", "no reader"),
        ("so do", "so do others", "so do not"),
    ],
)
def test_the_patterns(pattern: str, hard: str, plain: str) -> None:
    assert COMPILED[pattern].search(hard)
    assert not COMPILED[pattern].search(plain)
