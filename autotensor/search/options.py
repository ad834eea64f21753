"""How much and how to search: the choices for a tuning run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from autotensor.base.doors import name_of
from autotensor.base.errors import InputError
from autotensor.search.doors import METRICS, MODELS, POLICIES, ModelFactory
from autotensor.search.effort import EFFORTS, Effort

if TYPE_CHECKING:
    from autotensor.resolve import Metric
    from autotensor.search.propose.policy import Policy


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """How much and how to search."""

    trials: int = 1000  # largest number of trials of all tasks together
    seed: int = 0
    # the model that ranks candidates: "xgb", "prior" (no learning), "random" (with policy "uniform", the
    # baseline), the name of an entry point, or a function that makes a model from seed and target
    model: str | ModelFactory = "xgb"
    batch: int = 8
    deadline_s: float | None = None  # of the run, from its request on; None: as the effort says
    effort: str = "normal"  # or "quick", "full"; effort.py explains them
    # a task stops when its next batch is not expected to save this share of the whole time; None: the
    # effort's share
    until_gain_below: float | None = None
    fresh: bool = False  # start again instead of continuing
    warm_start: bool = True  # learn from other workloads in the log
    patience: bool = True  # False: never stop a task early
    # the policy that proposes candidates: "tuner", "uniform", the name of an entry point, or a class; None:
    # the model's own
    policy: str | type[Policy] | None = None
    # the figure that is minimised: "median" (of the samples, in seconds), the name of an entry point, or a
    # function that makes a positive number from a trial
    metric: str | Metric = "median"

    def __post_init__(self) -> None:
        if not _whole(self.trials) or self.trials < 1:
            raise InputError(f"trials is {self.trials!r}; it must be a whole number, at least 1.")
        if not _whole(self.seed) or self.seed < 0:
            raise InputError(f"seed is {self.seed!r}; it must be a whole number, at least 0.")
        MODELS.known(self.model)
        POLICIES.known(self.proposer)
        METRICS.known(self.metric)
        for part in (self.model, self.proposer, self.metric):
            name_of(part)  # a part without a name is refused before anything is measured
        if not _whole(self.batch) or self.batch < 1:
            raise InputError(f"batch is {self.batch!r}; it must be a whole number, at least 1.")
        if self.deadline_s is not None and not (isinstance(self.deadline_s, Real) and self.deadline_s > 0):
            raise InputError(
                f"deadline_s is {self.deadline_s!r}; it must be a positive number of seconds.",
                fix="180 is three minutes.",
            )
        if self.effort not in EFFORTS:
            raise InputError(f"effort {self.effort!r} is unknown.", fix=f"Known: {', '.join(EFFORTS)}.")
        least = self.until_gain_below
        if least is not None and not (isinstance(least, Real) and 0 <= least < 1):
            raise InputError(
                f"until_gain_below is {self.until_gain_below!r}; it is a share of the whole time.",
                fix="0.01 stops when a batch promises less than 1 %.",
            )

    def plain(self) -> dict[str, Any]:
        """As JSON data, with the names of parts. Raises InputError for a part without a name."""
        parts = {"model": self.model, "policy": self.proposer, "metric": self.metric}
        return asdict(self) | {part: name_of(what) for part, what in parts.items()}

    @property
    def proposer(self) -> str | type[Policy]:
        """The policy: the chosen one, or the one that belongs to the model."""
        return self.policy or ("uniform" if self.model == "random" else "tuner")

    @property
    def means(self) -> Effort:
        """The settings of the chosen effort."""
        return EFFORTS[self.effort]

    @property
    def least_gain(self) -> float:
        """Share of the whole time that a task's next batch must promise to save."""
        return self.means.least_gain if self.until_gain_below is None else self.until_gain_below

    @property
    def limit_s(self) -> float | None:
        """Seconds until the run should end; None: it ends when it is done."""
        return self.means.limit_s if self.deadline_s is None else self.deadline_s


def _whole(value: Any) -> bool:
    return hasattr(value, "__index__")
