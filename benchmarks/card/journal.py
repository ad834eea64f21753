"""The outcome of every item, one line of JSON each. A run that is killed loses only its current item.

    {"stage": "kernels", "item": "matmul", "began": true}
    {"stage": "kernels", "item": "matmul", "status": "ok", "row": {…}}

The first line holds the settings of the run. Other settings begin a new journal. The last entry of an item
counts. An incomplete line is dropped, and the next entry begins on a new line.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from card.failures import NOT_RUN, TIME_LIMIT

Entry = dict[str, Any]
UNSETTLED = (NOT_RUN, TIME_LIMIT)


class Journal:
    """A file that is only appended to, by one process at a time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def note(self, **entry: Any) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab+") as out:
            end = out.seek(0, os.SEEK_END)
            if end:
                out.seek(end - 1)
                if out.read(1) != b"\n":
                    out.write(b"\n")
            out.write(json.dumps(entry, default=str).encode() + b"\n")

    def entries(self) -> list[Entry]:
        if not self.file.exists():
            return []
        found = []
        for line in self.file.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # cut off
        return found

    def begin(self, asked: list[Any]) -> None:
        """Continues the journal if the settings are the same, else starts a new one. Items that had no time
        left, and the card itself, run again."""
        before = next((e["asked"] for e in self.entries() if "asked" in e), None)
        if before != asked:
            self.file.unlink(missing_ok=True)
            self.note(asked=asked)
        for (stage, item), entry in self.settled().items():
            if entry.get("kind") in UNSETTLED or stage == "card":
                self.note(stage=stage, item=item, again=True)

    def settled(self) -> dict[tuple[str, str], Entry]:
        """The items that have ended."""
        found: dict[tuple[str, str], Entry] = {}
        for e in self.entries():
            if "status" in e:
                found[e["stage"], e["item"]] = e
            elif e.get("again"):
                found.pop((e["stage"], e["item"]), None)
        return found

    def begun(self, stage: str) -> str | None:
        """The item of a stage that began last and has not ended."""
        open_items = []
        for e in self.entries():
            if e.get("stage") == stage:
                if e.get("began"):
                    open_items = [e["item"]]
                elif "status" in e and e["item"] in open_items:
                    open_items = []
        return open_items[0] if open_items else None
