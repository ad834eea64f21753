"""A table with the outcome of every trial and the features that a cost model sees.

    rows of the log ──by workload and sketch──▶ populations ──prior, features──▶ Arrow batches

The features come from today's rules and prior. A trial is left out if today's rules no longer make its
sketch; the frame counts such trials. The prior uses the rates that the log has for the trial's machine.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from autotensor.base.errors import AutotensorError
from autotensor.base.target import Target
from autotensor.schedule.sketch import Sketch
from autotensor.search.machine.calibration import known_rates
from autotensor.search.propose.population import Ints
from autotensor.search.score.features import NAMES
from autotensor.search.score.scoring import Scoring
from autotensor.search.shipped_knowledge import with_shipped
from autotensor.search.task import Task
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from tuning_db import StoreError, TrialStore
from tuning_db.exchange.frames import (
    TABLES,
    Frame,
    Where,
    among,
    check_shapes,
    check_values,
    import_pyarrow,
    select,
)

if TYPE_CHECKING:
    import pyarrow as pa

OUTCOME = (
    "trial",
    "workload",
    "target",
    "machine",
    "session",
    "kind",
    "made_by",
    "status",
    "median_s",
    "verdict",
)
NEEDED = ("sketch", "decisions")
PRIOR = "prior_s"
COLUMNS = (*OUTCOME, PRIOR, *NAMES)
# reasons why trials are left out
UNREADABLE = "this version cannot read the computation or the target"
NO_SKETCH = "no installed rule makes the sketch any more"
NO_OPTION = "the rule no longer offers the options that were chosen"
ROWS = 100_000  # rows that are read at once: describing a sketch takes as long for one row as for hundreds


def feature_frame(store: TrialStore, where: Where, columns: Sequence[str] | None = None) -> Frame:
    """The table. Raises StoreError for an unknown column, and when pyarrow is not installed."""
    check_shapes(where, columns)
    pa = import_pyarrow()
    kinds: dict[str, Any] = {name: pa.float64() for name in (PRIOR, *NAMES)}
    for name in OUTCOME:
        kind = TABLES["trials"].columns[name].kind
        kinds[name] = {"count": pa.int64(), "number": pa.float64(), "yes": pa.bool_()}.get(kind, pa.string())
    names = list(COLUMNS) if columns is None else list(columns)
    for asked, known in ((names, kinds), (where, TABLES["trials"].columns)):
        for name in asked:
            if name not in known:
                raise StoreError(f"table 'features' has no column {name!r}.", among(name, known))
    check_values(TABLES["trials"], where)
    schema = pa.schema([(name, kinds[name]) for name in names])
    left_out: Counter[str] = Counter()
    return Frame(schema, lambda: _batches(store, where, schema, left_out), left_out)


def _batches(
    store: TrialStore, where: Where, schema: pa.Schema, left_out: Counter[str]
) -> Iterator[pa.RecordBatch]:
    pa = import_pyarrow()
    left_out.clear()
    table = TABLES["trials"]
    asked = (*OUTCOME, *NEEDED)
    query, values = select(table, {name: table.columns[name] for name in asked}, where)
    space = _Space(store)
    for rows in store.rows(query, values, ROWS):
        trials = [dict(zip(asked, row, strict=True)) for row in rows]
        for (workload, target, sketch, _), group in _alike(trials, space):
            found = space.described(workload, target, group[0]["machine"], sketch, group, left_out)
            if found:
                yield pa.RecordBatch.from_pydict({n: found[n] for n in schema.names}, schema=schema)


def _alike(
    trials: list[dict[str, Any]], space: _Space
) -> Iterator[tuple[tuple[str, str, str, str], list[dict[str, Any]]]]:
    """Trials of one sketch on machines with equal rates. They are described together."""

    def place(t: dict[str, Any]) -> tuple[str, str, str, str]:
        return t["workload"], t["target"], t["sketch"] or "", space.rates_of(t["machine"], t["target"])

    trials.sort(key=place)
    for key, group in groupby(trials, key=place):
        yield key, list(group)


class _Space:
    """Workloads, sketches and rates of one log, each made once."""

    def __init__(self, store: TrialStore) -> None:
        self.store = store
        self.texts = {w.key: w for w in store.workloads()}
        self.targets = {t.key: t.text for t in store.targets()}
        self.sketches = lru_cache(maxsize=256)(self._sketches)
        self.rates = lru_cache(maxsize=256)(lambda machine, target: known_rates(store, machine, target))
        self.rates_of = lru_cache(maxsize=256)(self._rates_of)

    def _sketches(self, workload: str, target: str) -> Mapping[str, tuple[Sketch, Any, Target]]:
        """Today's sketches of a task, by their hashes; empty for a task that this version cannot read."""
        try:
            known = self.texts[workload]
            task = Task(
                Workload.from_text(known.text, known.name, workload), Target.from_json(self.targets[target])
            )
            made, _ = with_shipped(task, generate(task.workload.dag, task.target))
        except (AutotensorError, ValueError, KeyError, TypeError):
            return {}
        dag = task.workload.dag
        return {s.hash: (s, structure(s, dag), task.target) for s in made}

    def _rates_of(self, machine: str, target: str) -> str:
        """A name for the rates of a machine; "" for a target that this version cannot read."""
        try:
            return repr(self.rates(machine, Target.from_json(self.targets[target])))
        except (AutotensorError, ValueError, KeyError, TypeError):
            return ""

    def described(
        self,
        workload: str,
        target: str,
        machine: str,
        sketch: str,
        trials: list[dict[str, Any]],
        left_out: Counter[str],
    ) -> dict[str, Any]:
        """Columns of the trials of one sketch; {} if today's rules do not make the sketch. Trials without
        columns are counted in `left_out`."""
        sketches = self.sketches(workload, target)
        known = sketches.get(sketch)
        if known is None:
            left_out[NO_SKETCH if sketches else UNREADABLE] += len(trials)
            return {}
        made, state, aim = known
        rows = [(t, _row(made, json.loads(t["decisions"]))) for t in trials]
        fitting = [(t, row) for t, row in rows if row is not None]
        left_out.update({NO_OPTION: len(rows) - len(fitting)} if len(fitting) < len(rows) else {})
        if not fitting:
            return {}
        scoring = Scoring(made, state, aim, self.rates(machine, aim))
        matrix, prior = scoring.described(np.stack([row for _, row in fitting]))
        columns: dict[str, Any] = {name: [t[name] for t, _ in fitting] for name in OUTCOME}
        columns["verdict"] = [None if v is None else bool(v) for v in columns["verdict"]]
        return columns | {PRIOR: prior} | dict(zip(NAMES, matrix.T, strict=True))


def _row(sketch: Sketch, decisions: Mapping[str, Sequence[int]]) -> Ints | None:
    """Decisions as indices of options; None if an option no longer exists."""
    found = []
    for hole in sketch.holes:
        numbers = _numbers(hole.options)
        number = numbers.get(tuple(decisions.get(hole.name, ())))
        if number is None:
            return None
        found.append(number)
    return np.asarray(found, dtype=np.int64)


@lru_cache(maxsize=1024)
def _numbers(options: tuple[tuple[int, ...], ...]) -> Mapping[tuple[int, ...], int]:
    return {option: n for n, option in enumerate(options)}


__all__ = ["feature_frame"]
