"""The `options=` of torch.compile, for the backend in `torch_compile.py`.

torch.compile(model, backend="autotensor", options={"log": "tuning.db", "trials": 200})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from autotensor.api.instant_models import check_instant
from autotensor.api.log import Log, open_existing, open_log
from autotensor.api.model_compiling import check_trials
from autotensor.api.models import check_target
from autotensor.base.errors import InputError
from autotensor.base.registry import suggest
from autotensor.base.target import parse


@dataclass(frozen=True, slots=True)
class Options:
    """The options as the user gave them."""

    log: Log = None  # the tuning log; None is the user's own
    trials: int = 0  # schedules to measure for each part; 0: use the schedules in the log
    target: str | None = None
    seed: int = 0
    constant_weights: bool = True  # False: weights and buffers are read at every call, not packed once
    quiet: bool = False  # print nothing about parts that run in eager mode
    instant: bool = False  # the first answers are NumPy's, while child processes compile

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """The options from a dictionary. Raises InputError for an option that does not exist, and for values
        that would leave every part in eager mode. Raises LogError for a log that cannot be opened."""
        known = tuple(f.name for f in fields(Options))
        for name in given or {}:
            if name not in known:
                raise InputError(f"backend autotensor has no option {name!r}.", fix=suggest(name, known))
        options = Options(**(given or {}))
        check_trials(options.trials)
        check_target(parse(options.target))
        if options.instant:
            check_instant(options.target, options.trials)
        if not hasattr(options.seed, "__index__"):
            raise InputError(f"seed is {options.seed!r}; it must be a whole number.")
        with open_log(options.log) if options.trials else open_existing(options.log):
            return options
