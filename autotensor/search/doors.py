"""The search's parts by name: our own parts, and parts of other packages (docs/extend.md).

A part is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotensor.base.doors import Door
from autotensor.base.target import Target

if TYPE_CHECKING:
    from autotensor.resolve import Metric
    from autotensor.search.propose.policy import Policy
    from autotensor.search.score.cost_model import CostModel

# Arguments: the seed, and the target. The model may begin with the model that is shipped for this target
# (None: it begins with nothing).
ModelFactory = Callable[[int, Target | None], "CostModel"]


def _is_policy(thing: Any) -> bool:
    from autotensor.search.propose.policy import Policy

    return isinstance(thing, type) and issubclass(thing, Policy)


MODELS: Door[ModelFactory] = Door(
    "cost model",
    "autotensor.cost_models",
    callable,
    {
        "xgb": "autotensor.search.score.boosted.xgb_model:started",
        "prior": "autotensor.search.score.cost_model:PriorModel",
        "random": "autotensor.search.score.cost_model:RandomModel",
    },
    form="It is a class, or a function of seed and target, which makes one for each run.",
)
POLICIES: Door[type[Policy]] = Door(
    "search policy",
    "autotensor.policies",
    _is_policy,
    {
        "tuner": "autotensor.search.propose.tuner:Tuner",
        "uniform": "autotensor.search.propose.policy:Uniform",
    },
)
METRICS: Door[Metric] = Door(
    "metric", "autotensor.metrics", callable, {"median": "autotensor.resolve:median_s"}
)
