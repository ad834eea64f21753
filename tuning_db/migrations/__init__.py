"""Schema versions of the tuning log: one alembic file per version under `versions/`, named `v0001_…`.

A new log is made from `models.py`, and its version is recorded. `upgrade` brings an older log to this
version. A test checks that both have the same schema. Importing this module costs nothing; only `upgrade`
loads alembic (0.4 s).

To add version N: change `models.py`; add `versions/vN_….py` with `op.batch_alter_table` (SQLite cannot alter
a table in place); drop the views before it and create them again after it; raise `HEAD`; and add a dump of
the version before to `tests/tuning_db/fixtures/`. Foreign keys are turned off during an upgrade, because
otherwise rebuilding a table would empty the tables that refer to it. They are checked before the commit.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

HEAD = 2  # schema version this program reads and writes
FOLDER = Path(__file__).parent
VERSION_TABLE = "tuning_db_version"


def revision(version: int) -> str:
    """The alembic name of a schema version.

    >>> revision(1)
    '0001'
    """
    return f"{version:04d}"


def upgrade(connection: Connection) -> None:
    """Run every migration that `connection`'s database lacks, in the transaction that is open on it."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(FOLDER))

    def steps(found: Any, context: Any) -> Any:
        return scripts._upgrade_revs("head", found)

    # The steps run here and not in an env.py, so that every module of the package can be imported safely.
    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(
            connection=connection, version_table=VERSION_TABLE, render_as_batch=True, transactional_ddl=False
        )
        environment.run_migrations()
