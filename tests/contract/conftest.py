"""An empty store of each kind that keeps the contract: in memory, a file, a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import Server

from tuning_db import TrialStore, connect


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TrialStore]:
    match request.param:
        case "memory":
            opened = connect(":memory:")
        case "sqlite":
            opened = connect(tmp_path / "log.db")
        case _:
            server: Server = request.getfixturevalue("server")
            server.empty()
            opened = connect(server.url)
    with opened:
        yield opened
