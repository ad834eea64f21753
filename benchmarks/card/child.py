"""Runs one stage's items, one after another, in this process. The journal records the beginning and the end
of each.

    python -m card.child JOURNAL STAGE TARGET SMALL TRIALS < items, a line each

The process ends when its parent ends. It also ends after a failure: a card's context may not recover, and the
next item gets a new context.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path


def main() -> None:
    journal_file, stage_name, target, small, trials = sys.argv[1:]
    items = []
    for line in sys.stdin:  # an empty line ends the list; the pipe stays open as long as the parent lives
        if not line.strip():
            break
        items.append(line.strip())
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    from card.failures import kind_of
    from card.journal import Journal
    from card.stages import STAGES, Setting

    journal, stage = Journal(Path(journal_file)), STAGES[stage_name]
    setting = Setting(target, small == "1", int(trials))
    for item in items:
        os.environ["CARD_ITEM"] = f"{stage_name}/{item}"
        journal.note(stage=stage_name, item=item, began=True)
        try:
            row = stage.run(setting, item)
        except Exception as error:
            words = traceback.format_exception_only(error)[-1].strip()
            at = traceback.format_exc().splitlines()[-12:]
            journal.note(
                stage=stage_name, item=item, status="failed", kind=kind_of(error), what=words, trace=at
            )
            return
        journal.note(stage=stage_name, item=item, status="ok", row=row)


def _leave_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(3)


if __name__ == "__main__":
    main()
