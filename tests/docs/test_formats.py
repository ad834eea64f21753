"""docs/deploy.md has the version of each format that the code writes."""

from __future__ import annotations

import re
from pathlib import Path

import tuning_db.exchange.transfer
import tuning_db.migrations
from autotensor.cli.questions import answers
from autotensor.graph import lock_file
from autotensor.insight.report import figures
from autotensor.runtime.files import artifact_file
from autotensor.schedule import trace
from autotensor.search.score.boosted import ensemble_file
from autotensor.te import workload
from schedules import records

WRITTEN = {  # beginning of a row → the version that the code writes
    "`.atm` file": artifact_file.FORMAT,
    "tuning log": tuning_db.migrations.HEAD,
    "exported log": tuning_db.exchange.transfer.VERSION,
    "lock of a model's schedules": lock_file.FORMAT,
    "schedules that come with autotensor": records.VERSION,
    "trace": trace.VERSION,
    "workload": workload.FORMAT,
    "file of a cost model": ensemble_file.FORMAT,
    "`--json` of the `autotensor db` queries": answers.VERSION,
    "`--json` of `autotensor report`": figures.VERSION,
}


def test_the_versions_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    table = page.split("| Format | Version |")[1]
    rows = dict(re.findall(r"^\| (.*?) \| (\d+) \| .* \|$", table, re.M))
    shown = {start: int(v) for row, v in rows.items() for start in WRITTEN if row.startswith(start)}
    assert shown == WRITTEN
    assert len(rows) == len(WRITTEN)
    assert f"this version writes format {artifact_file.FORMAT}." in page
