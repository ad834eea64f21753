"""How long to search, in words: the meaning of `quick`, `normal` and `full`.

    quick    the heaviest tasks, two batches each, a minute at most
    normal   every task, until a batch promises to save too little of the whole time
    full     every task, until its space or the machine's limit is reached, or the search is confident

One number decides when to stop: the *expected gain* of a task's next batch, as a share of the whole time (for
a model, the time of one inference). `--until-gain-below` sets this share directly. The number of trials is a
ceiling for all efforts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """The limits of one effort."""

    # share of the whole time that the tuned tasks cover; the lightest tasks beyond it are not tuned
    coverage: float
    batches: int | None  # most batches of one task; None: no limit
    least_gain: float  # share of the whole time that a batch must promise to save
    race_s: float  # seconds of timing in one final race; building and checking are extra
    limit_s: float | None  # seconds of the whole run, if no deadline is given; None: no limit


EFFORTS = {
    "quick": Effort(coverage=0.9, batches=2, least_gain=0.01, race_s=0.5, limit_s=60.0),
    # ResNet-50 has 24 tasks, each with about 4 % of the time. So 0.05 % of the whole time is about 1 % of the
    # time of one task.
    "normal": Effort(coverage=1.0, batches=None, least_gain=0.0005, race_s=1.0, limit_s=None),
    "full": Effort(coverage=1.0, batches=None, least_gain=0.0, race_s=3.0, limit_s=None),
}
COVERED = "it is light, and effort quick leaves it as it is"
EFFORT_SPENT = "effort quick is done with the heaviest tasks"
BATCHES_SPENT = "its batches of effort quick are spent"


def percent(share: float) -> str:
    """A share as a percentage.

    >>> percent(0.01), percent(0.0005), percent(0.125)
    ('1 %', '0.05 %', '12.5 %')
    """
    return f"{100.0 * share:.3g} %"


def too_little(least_gain: float) -> str:
    """The reason why a run ends if all its tasks promise less.

    >>> too_little(0.01)
    'no task promises to save 1 % of the whole time per batch any more'
    """
    return f"no task promises to save {percent(least_gain)} of the whole time per batch any more"
