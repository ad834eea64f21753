"""Schema versions of the tuning log: one alembic file per version under `versions/`, named `v0001_…`.

A fresh log is made from `models.py` and stamped; an older one is brought up by `upgrade`. A test proves
that both give the same schema. Importing this module costs nothing; alembic (0.4 s) is loaded by `upgrade`
alone.

To add version N: change `models.py`, add `versions/vN_….py` with `op.batch_alter_table` (SQLite cannot
alter in place), drop the views before and make them again after, raise `HEAD`, and check in a dump of the
version before under `tests/tuning_db/fixtures/`. The connection has foreign keys off, or rebuilding a table
would empty the ones that refer to it; they are checked before the commit.
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

    # no env.py: the steps are run here, so that importing every module of the package stays harmless
    with EnvironmentContext(Config(), scripts, fn=steps) as environment:
        environment.configure(
            connection=connection, version_table=VERSION_TABLE, render_as_batch=True, transactional_ddl=False
        )
        environment.run_migrations()
