"""Sentences about times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from autotensor.api.model_tuning import ModelReport, kept_defaults
from autotensor.cli.tune_report import latency
from autotensor.cli.verbs.bench import _merged
from autotensor.runtime.kernel_times import KernelTime
from autotensor.search.report import TuneReport


def test_what_tuning_gave() -> None:
    assert latency(0.0341, 0.0317) == "34.1 ms untuned, 31.7 ms tuned (1.08 times as fast)"
    assert latency(0.0341, 0.0340) == "34.1 ms untuned, 34 ms tuned (as fast, within the noise)"
    assert latency(0.0341, 0.0341) == "34.1 ms with the default schedules"


def test_why_the_defaults_were_kept() -> None:
    kept = "; the default ones were kept"
    assert kept_defaults(1.0, 1.031) == f"in the whole model the tuned schedules were 3.1 % slower{kept}"
    assert kept_defaults(1.0, 1.001).endswith(f"were as fast, within the noise{kept}")


def test_kernels_of_one_workload_are_one_row() -> None:
    kernels = [
        KernelTime("p", "a", 8.0, 1e-3),
        KernelTime("q", "b", 4.0, 3e-3),
        KernelTime("r", "a", 8.0, 4e-3),
    ]
    assert _merged(kernels) == [
        {"name": "p", "workload": "a", "flops": 8.0, "count": 2, "total_s": 5e-3},
        {"name": "q", "workload": "b", "flops": 4.0, "count": 1, "total_s": 3e-3},
    ]


def test_a_model_report_prints_as_a_few_lines() -> None:
    run = TuneReport((), 64, 0, 9.0, "all trials are spent")
    module: Any = SimpleNamespace(name="mlp")
    assert str(ModelReport(run, module, 2e-3, 1e-3)).splitlines() == [
        "64 trials (0 from the log) in 9 s: all trials are spent",
        "mlp: 1 ms, 2.00 times as fast as with the default schedules",
    ]
    kept = ModelReport(run, module, 2e-3, 2e-3, notes=(kept_defaults(2e-3, 2.2e-3),))
    assert str(kept).splitlines()[1:] == [
        "note: in the whole model the tuned schedules were 10.0 % slower; the default ones were kept"
    ]
