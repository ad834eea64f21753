"""Opens the log for a question."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autotensor.base.errors import InputError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tuning_db import TrialStore


def reading(db: str | None) -> AbstractContextManager[TrialStore]:
    """The log, opened for reading. Raises InputError if there is none."""
    from autotensor.api.log import default_log, open_existing

    if db is None and "://" not in default_log() and not Path(default_log()).exists():
        raise InputError(
            f"there is no tuning log at {default_log()} yet.", fix="Tune, or name one with --db."
        )
    return open_existing(default_log() if db is None else db)  # type: ignore[return-value]  # None only for the default
