"""A report as text: a line for each task, whose digits `autotensor explain` takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import task
from zoo import gemm

from autotensor.base.errors import InputError
from autotensor.cli.find import find
from autotensor.search.report import TaskReport, TuneReport
from tuning_db import connect


def test_explain_takes_the_digits_of_a_line(tmp_path: Path) -> None:
    one = task(gemm(8, 8, 8))
    tasks = (TaskReport(one, 2e-6, 1e-6, None, 8, 0, "why"), TaskReport(one, None, None, None, 1, 1, "why"))
    fast, failed, run = str(TuneReport(tasks, 9, 0, 1.0, "all trials are spent")).splitlines()
    assert fast.endswith("]: 1.0 us, 2.00 times as fast as the default, 8 trials (why)")
    assert failed.endswith("]: no time after 1 trial (why), of which 1 failed: `autotensor db failures`")
    assert TuneReport(tasks, 9, 0, 1.0, "all trials are spent").failures == 1
    assert run.startswith("9 trials")
    with connect(tmp_path / "log.db") as store:
        store.ensure_workload(one.workload.key, one.workload.name, one.workload.text, 1.0)
        for line in (fast, failed):
            (digits,) = re.findall(r" \[([0-9a-f]+)\]: ", line)
            assert find(digits, store).workload.key == one.workload.key


def test_explain_takes_the_name_given_to_tune(tmp_path: Path) -> None:
    one, other = (task(gemm(n, n, n)).workload for n in (8, 16))
    with connect(tmp_path / "log.db") as store:
        store.ensure_workload(one.key, "mine", one.text, 1.0)
        assert find("mine", store).workload.key == one.key
        store.ensure_workload(other.key, "mine", other.text, 1.0)
        with pytest.raises(InputError, match=f"2 workloads .* Give a key: .*{other.key[:12]}"):
            find("mine", store)
