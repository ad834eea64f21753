"""The options by which two runs are the same run, and the reasons why an ended run has nothing left to do."""

from __future__ import annotations

from dataclasses import replace

from autotensor.base.doors import name_of
from autotensor.base.target import Target
from autotensor.search.effort import EFFORT_SPENT, too_little
from autotensor.search.journal import ALL_FINISHED
from autotensor.search.options import TuneOptions
from schedules.generate import brought
from schedules.shipped import fits


def final_reasons(options: TuneOptions) -> frozenset[str]:
    """The reasons for which a run with these options ends with nothing left to do, for any number of
    trials."""
    quick = [EFFORT_SPENT] if options.means.batches is not None else []
    return frozenset([ALL_FINISHED, too_little(options.least_gain), *quick])


def key_options(options: TuneOptions, target: Target, residency: str, code: str = "") -> dict[str, object]:
    """The options that distinguish runs; budgets do not. A run that begins with knowledge shipped for this
    class of machines is not the same as a run without it, nor is a run with other rules than the package's
    own. code: as in `TuningRun`."""
    key: dict[str, object] = {
        "model": name_of(options.model),
        "batch": options.batch,
        "residency": residency,
    }
    if options.proposer != replace(options, policy=None).proposer:
        key["policy"] = name_of(options.proposer)
    if options.metric != "median":
        key["metric"] = name_of(options.metric)
    if code:
        key["code"] = code
    if outside := brought(target):
        key["rules"] = list(outside)
    return {**key, "shipped": True} if options.warm_start and fits(target) else key
