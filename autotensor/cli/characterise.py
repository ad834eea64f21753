"""The output of `autotensor doctor --characterise`: a record of this processor, as Python or JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from math import inf
from typing import Any

from autotensor.base.machine import host_machine
from autotensor.base.target import Target
from autotensor.cli.output import put_json, say, tell
from autotensor.search.machine.characterise import Certainty, Characterised, characterise
from autotensor.search.machine.cpu_probes import PASSES, measured_passes


def print_record(target: Target, json: bool) -> None:
    """Measure this processor and print its record. Raises MeasureError if it cannot be measured."""
    passes = measured_passes(target, lambda done: tell(f"pass {done + 1} of {PASSES} …"))
    found = characterise(target, passes)
    text = found.python(f"{host_machine().cpu_model}, {datetime.now(UTC):%Y-%m}")
    put_json(record_json(found) | {"python": text}) if json else say(text.rstrip())


def record_json(found: Characterised) -> dict[str, Any]:
    """The measured fields, and the names of the others; null stands for infinity."""

    def finite(value: Any) -> Any:
        return None if value == inf else value

    measured = [f for f in found.findings if f.standing is not Certainty.MISSING]
    return {
        "name": found.name,
        "nearest": found.nearest.name,
        "others_cores": found.others,
        "measured": [{k: finite(v) for k, v in asdict(f).items()} for f in measured],
        "not_measured": [f.field for f in found.of(Certainty.MISSING)],
    }
