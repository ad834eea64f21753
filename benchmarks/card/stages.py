"""All work on a card, in order: stages of items, with their time limits.

    card        driver, limits, libraries
    kernels     every schedule of tests/kit/gpu_cases.py against the reference
    operators   every operator × sample under its default schedule against NumPy
    models      MLP, ResNet-18, a block of a transformer whole, against NumPy
    memory, products, layers, speed       against a copy, cuBLAS, cuDNN, torch
    tuning      a search on three tasks

If `card` fails, nothing else runs. Its failure says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotensor.base.target import Target, parse
from card import checks, speeds
from card.checks import Row


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of all items."""

    target: str
    small: bool = False  # sizes for a simulated card, and for OpenCL
    trials: int = 200  # trials of tuning, for all tasks together

    @property
    def parsed(self) -> Target:
        return parse(self.target)


@dataclass(frozen=True, slots=True)
class Stage:
    """Items of one kind."""

    name: str
    limit_s: float  # limit for all items of the stage
    item_s: float  # limit for one item
    names: Callable[[Setting], list[str]]
    run: Callable[[Setting, str], Row]


def _searched(s: Setting, name: str) -> Row:
    return speeds.tuning(s.parsed, name, s.small, max(1, s.trials // len(speeds.TUNED)))


STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("card", 60, 60, lambda s: ["card"], lambda s, i: checks.the_card(s.parsed)),
        Stage(
            "kernels",
            60,
            20,
            lambda s: checks.kernel_names(s.parsed),
            lambda s, i: checks.kernel(s.parsed, i),
        ),
        Stage(
            "operators", 150, 20, lambda s: checks.operator_names(), lambda s, i: checks.operator(s.parsed, i)
        ),
        Stage(
            "models",
            90,
            60,
            lambda s: list(checks.MODEL_NAMES),
            lambda s, i: checks.model(s.parsed, i, s.small),
        ),
        Stage(
            "memory",
            30,
            20,
            lambda s: list(speeds.MEMORY_NAMES),
            lambda s, i: speeds.memory(s.parsed, i, s.small),
        ),
        Stage(
            "products",
            60,
            30,
            lambda s: speeds.product_names(s.parsed, s.small),
            lambda s, i: speeds.product(s.parsed, i, s.small),
        ),
        Stage(
            "layers",
            60,
            30,
            lambda s: speeds.layer_names(s.small),
            lambda s, i: speeds.layer(s.parsed, i, s.small),
        ),
        Stage(
            "speed",
            90,
            60,
            lambda s: list(checks.MODEL_NAMES),
            lambda s, i: speeds.whole_model(s.parsed, i, s.small),
        ),
        Stage("tuning", 240, 80, lambda s: list(speeds.TUNED), _searched),
    )
}
