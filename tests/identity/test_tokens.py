"""The tokens that are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tokens import count

FUNCTION = '''"""A module."""
import os

from a import (
    b,
    c,
)

def twice(x: int) -> int:  # and no more
    """Doubled.

    Of anything.
    """
    import late
    return (
        x + x
    )
'''


def test_layout_comments_docstrings_and_imports_of_modules_do_not_count() -> None:
    counted = "def twice ( x : int ) -> int : import late return ( x + x )"
    assert count(FUNCTION) == counted.count(" ") + 1


def test_the_script_counts_the_work_tree() -> None:
    script = Path(__file__).with_name("tokens.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    *rooms, whole = (line.split() for line in done.stdout.splitlines())
    assert whole[0] == "all"
    assert sum(int(n.replace(",", "")) for _, n in rooms) == int(whole[1].replace(",", ""))
    assert {"autotensor/ir", "schedules/rules", "tuning_db"} <= {room for room, _ in rooms}
