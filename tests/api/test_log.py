"""Every error of the tuning log is an AutotensorError for callers of autotensor."""

from __future__ import annotations

from pathlib import Path

import pytest

import autotensor as at
from autotensor import te
from autotensor.api.log import LogError, open_existing, open_log
from tuning_db import StoreError, connect


def test_a_damaged_log(tmp_path: Path) -> None:
    file = tmp_path / "broken.db"
    file.write_text("this is no database, whatever its name says")
    a = te.placeholder((4,), name="a")
    args = [a, te.compute((4,), lambda i: a[i] + 1.0, name="b")]
    for use in (lambda: at.build(args, db=file), lambda: at.tune(args, db=file), lambda: open_log(file)):
        with pytest.raises(at.AutotensorError, match=r"is not a tuning log.* Name another file\.") as caught:
            use()
        assert isinstance(caught.value, StoreError)  # callers may also catch the store's own class
        assert isinstance(caught.value.__cause__, StoreError)


@pytest.mark.parametrize("opened", [open_log, open_existing])
def test_errors_of_a_log_in_use(opened) -> None:
    with connect(":memory:") as store:
        with pytest.raises(LogError, match="has no trial 17"), opened(store) as log:
            log.trial(17)
        assert store.count() == 0  # it was lent, not given: still open
    with pytest.raises(LogError, match=r"is closed\. Connect to it again\."), opened(store) as log:
        log.count()


def test_a_log_is_closed_at_the_end(tmp_path: Path) -> None:
    with open_log(tmp_path / "own.db") as log:
        assert log.count() == 0
    with pytest.raises(StoreError, match="is closed"):
        log.count()


def test_a_log_in_a_folder_of_somebody_else(monkeypatch, caplog) -> None:
    """The home folder belongs to another user, as in a container without a user of its own: there is no
    log."""

    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.delenv("AUTOTENSOR_DB", raising=False)
    monkeypatch.setattr(Path, "exists", refused)
    with open_existing(None) as log:
        assert log is None
    assert "cannot be reached: Permission denied. None is used." in caplog.text
    with pytest.raises(LogError, match=r"named\.db: Permission denied\."):
        open_existing("named.db")
