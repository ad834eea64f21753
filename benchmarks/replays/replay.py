"""Searches replayed on measured spaces: every policy with many seeds, in seconds, without measuring.

    run = replay(space, POLICIES["full"], seed=0, trials=64)
    run.share(8)          best known / best after 8 trials
    run.trials_to(0.05)   trials until within 5 % of the best; None: never in this run

A trial is a candidate that ran or failed. If a candidate is rejected because of its machine code, the search
learns this at no cost, as in a real run. Times come from the table, so they are the same for every policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from autotensor.search.loop import made_model
from autotensor.search.propose import policy as proposals
from autotensor.search.propose.population import sample
from autotensor.search.propose.transfer import MOST, OF_ONE, refit, shape_of
from autotensor.search.propose.tuner import SearchOptions, Tuner
from autotensor.search.score.cost_model import CostModel
from autotensor.search.task import Candidate
from replays.measured_space import Space
from schedules.generate import structure
from schedules.prior.predict import predict

BATCH = 8  # as in the tuner
TAUGHT = 64  # how many trials of every other space a warm log holds
Batches = Iterator[Sequence[Candidate]]


@dataclass(frozen=True)
class Run:
    """One search: the best time in the table after each trial. Before the first trial it is the default's
    time."""

    space: str
    policy: str
    seed: int
    best_s: float
    default_s: float
    curve: tuple[float, ...]

    def after(self, trials: int) -> float:
        """The best seconds after so many trials; after 0 trials those of the first guess."""
        return self.curve[min(trials, len(self.curve)) - 1] if trials and self.curve else self.default_s

    def share(self, trials: int) -> float:
        """The speed after so many trials, as a share of the best known speed."""
        return self.best_s / self.after(trials)

    def trials_to(self, within: float) -> int | None:
        """The trials until the best is within `within` of the best known; 0: the first guess is."""
        goal = self.best_s * (1.0 + within)
        if self.default_s <= goal:
            return 0
        return next((n for n, s in enumerate(self.curve, start=1) if s <= goal), None)


@dataclass(frozen=True)
class Policy:
    """The differences from the unchanged search. A Tuner is made with `model` and `options`."""

    about: str
    model: str = "xgb"
    # frozen; None: candidates are drawn evenly
    options: SearchOptions | None = SearchOptions()  # noqa: RUF009
    warm: bool = False  # the log has trials of the other spaces
    told: str = "graph"  # residency of the times that the search gets
    blind: bool = False  # drafts in random order, and a model that does not start from the prior
    ranked: bool = False  # no search: all candidates in the order of the prior
    batch: int = BATCH


POLICIES = {
    "full": Policy("prior, search and XGBoost, from an empty log"),
    "warm": Policy("the same, the log has trials of the other tasks", warm=True),
    "no-model": Policy("prior and search, nothing is learned", model="prior"),
    "prior-only": Policy("the candidates in the order of the prior", ranked=True),
    "no-prior": Policy("search and XGBoost, drafts in random order", blind=True),
    "random": Policy("uniform over all candidates", model="random", options=None),
    "no-descent": Policy("no small steps from the best", options=SearchOptions(descents=0)),
    "hot-only": Policy("timed with everything in the caches, judged as in a model", told="hot"),
    "by-ones": Policy("batches of one: the model hears of every trial", batch=1),
}


class Blind:
    """A cost model that does not get the prior of a candidate. Only its features may contain parts of the
    prior."""

    def __init__(self, inner: CostModel, seed: int) -> None:
        self.inner, self.rng = inner, np.random.default_rng(seed)

    def predict(self, features: Any, prior: Any, group: str) -> Any:
        """The inner model's prediction with one prior for all candidates. A random millionth orders equal
        candidates."""
        return self.inner.predict(
            features, self._same(prior) * (1.0 + 1e-6 * self.rng.random(len(prior))), group
        )

    def learn(self, features: Any, prior: Any, seconds: Any, group: str) -> None:
        self.inner.learn(features, self._same(prior), seconds, group)

    def _same(self, prior: Any) -> Any:
        return np.full(len(prior), 1e-3)


def replay(space: Space, name: str, seed: int, trials: int, others: Sequence[Space] = ()) -> Run:
    """Replays one policy on one space. others: the spaces whose trials a warm log holds."""
    policy = POLICIES[name]
    batches = ranked(space, policy) if policy.ranked else searched(space, policy, seed, others)
    best, curve = math.inf, []
    for batch in batches:
        for c in batch:
            if (seconds := space.outcome(c)) == "rejected":
                continue
            best = min(best, seconds) if isinstance(seconds, float) else best
            curve.append(best)
        if len(curve) >= trials:
            break
    default = space.outcome(space.default)
    assert isinstance(default, float)
    return Run(space.name, name, seed, space.best(), default, tuple(curve[:trials]))


def searched(space: Space, policy: Policy, seed: int, others: Sequence[Space]) -> Batches:
    """The batches that the tuner proposes. It gets the times from the table."""
    model = made_model(policy.model, seed, None)
    tuner = tuner_of(space, Blind(model, seed) if policy.blind else model, seed, policy.options)
    if policy.warm:
        foreign = [o for o in others if o.task.workload.key != space.task.workload.key]
        tuner.suggest(suggested(space, {o.name: (o, teach(model, o, seed)) for o in foreign}))
    while batch := tuner.ask(policy.batch):
        tuner.tell(batch, [_told(space.outcome(c, policy.told)) for c in batch])
        yield batch


def teach(model: CostModel, other: Space, seed: int) -> list[tuple[float, Candidate]]:
    """The model learns the measurements of a search on another space, as from a log. Returns them, fastest
    first."""
    tuner = tuner_of(other, model, seed, SearchOptions())
    asked: list[Candidate] = []
    times: list[float | None] = []
    searching = tuner_of(other, made_model("prior", seed, None), seed, SearchOptions())
    while len(asked) < TAUGHT and (batch := searching.ask(BATCH)):
        seconds = [_told(other.outcome(c)) for c in batch]
        searching.tell(batch, seconds)
        asked += batch
        times += seconds
    tuner.tell(asked, times)
    measured = [(t, n) for n, t in enumerate(times) if t is not None]
    return [(t, asked[n]) for t, n in sorted(measured)]


def suggested(
    space: Space, known: Mapping[str, tuple[Space, Sequence[tuple[float, Candidate]]]]
) -> list[Candidate]:
    """The best candidates of spaces of the same family, adapted to this space, the nearest first, as in
    transfer.seeds."""
    mine = shape_of(space.task.workload.text)
    near = []
    for name, (other, measured) in known.items():
        shape = shape_of(other.task.workload.text)
        if shape.family == mine.family:
            near.append((mine.distance(shape), name, measured))
    fitted = (
        refit(c.trace.to_json(), space.sketches) for _, _, best in sorted(near) for _, c in best[:OF_ONE]
    )
    return [c for c in fitted if c is not None][:MOST]


def tuner_of(space: Space, model: CostModel, seed: int, options: SearchOptions | None) -> proposals.Policy:
    policy = proposals.Uniform if options is None else partial(Tuner, options=options)
    return policy(space.task, model, space.rates, seed=seed, sketches=space.sketches)


def ranked(space: Space, policy: Policy) -> Batches:
    """The default, then all candidates in the order of the prior."""
    found: list[tuple[float, int, Candidate]] = []
    for s in space.sketches:
        pop = sample(s, structure(s, space.task.workload.dag), s.size, np.random.default_rng(0))
        prior, _ = predict(pop.picture, space.task.target, space.rates)
        found += [(float(p), len(found) + n, Candidate(s, pop.decisions(n))) for n, p in enumerate(prior)]
    seen = {space.default.trace.hash}
    yield [space.default]
    for _, _, c in sorted(found, key=lambda f: f[:2]):
        if c.trace.hash not in seen:
            seen.add(c.trace.hash)
            yield [c]


def _told(outcome: float | str) -> float | None:
    return outcome if isinstance(outcome, float) else None


# -- results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """A summary of all runs of one policy."""

    runs: int
    # number of trials → share of the best known speed: median and 10th percentile
    shares: dict[int, tuple[float, float]]
    to_five: tuple[float, float]  # trials until within 5 %: median and 90th percentile; inf: never in the run
    to_one: tuple[float, float]


def summarise(runs: Sequence[Run], steps: Sequence[int]) -> Summary:
    shares = {n: (median(r.share(n) for r in runs), low([r.share(n) for r in runs])) for n in steps}
    return Summary(len(runs), shares, _needed(runs, 0.05), _needed(runs, 0.01))


def _needed(runs: Sequence[Run], within: float) -> tuple[float, float]:
    counts = [math.inf if (n := r.trials_to(within)) is None else float(n) for r in runs]
    return percentile(counts, 0.5), percentile(counts, 0.9)


def low(values: Sequence[float]) -> float:
    """The 10th percentile: one in ten is worse."""
    return percentile(values, 0.1)


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that a share of at least `share` of all values does not exceed. Values may be infinite.

    >>> percentile([3.0, 1.0, 2.0, math.inf], 0.5), percentile([3.0, 1.0, 2.0, math.inf], 0.9)
    (2.0, inf)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
