"""Populations: many candidates of one sketch as arrays of indices, to be made and scored together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from autotensor.schedule.loop_picture import LoopPicture, picture
from autotensor.schedule.sketch import Hole, Option, Sketch
from autotensor.schedule.state import Ref, State

Ints = npt.NDArray[np.int64]
NEAR = 6  # number of similar options, for options with several components


@dataclass(frozen=True)
class Population:
    """`choices[hole]` holds the index of the chosen option for each candidate."""

    sketch: Sketch
    state: State  # the sketch's structure, replayed once
    choices: Ints  # [candidates, holes]

    def __len__(self) -> int:
        return int(self.choices.shape[0])

    @cached_property
    def picture(self) -> LoopPicture:
        values: dict[Ref, Ints] = {}
        for n, hole in enumerate(self.sketch.holes):
            options = np.asarray(hole.options, dtype=np.int64)  # [options, components]
            for component in range(options.shape[1]):
                values[Ref(hole.name, component)] = options[self.choices[:, n], component]
        return picture(self.state, values, len(self))

    def decisions(self, row: int) -> dict[str, Option]:
        return {h.name: h.options[int(self.choices[row, n])] for n, h in enumerate(self.sketch.holes)}


def sample(sketch: Sketch, state: State, count: int, rng: np.random.Generator) -> Population:
    """`count` random candidates. If the sketch has no more than that, all its candidates, in order."""
    sizes = [len(h.options) for h in sketch.holes]
    if sketch.size <= count:
        grid = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), dtype=np.int64)
        return Population(sketch, state, np.ascontiguousarray(grid, dtype=np.int64))
    columns = [rng.integers(0, n, count) for n in sizes]
    return Population(sketch, state, unique(np.stack(columns, axis=1).astype(np.int64)))


def unique(rows: Ints) -> Ints:
    """The distinct rows, in order of first appearance."""
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.sort(first)]


def encode(sketch: Sketch, decisions: Mapping[str, Option]) -> Ints:
    """Decisions as one row of option indices."""
    return np.asarray([h.options.index(tuple(decisions[h.name])) for h in sketch.holes], dtype=np.int64)


def near_options(hole: Hole) -> Ints:
    """[options, NEAR]: for each option the most similar ones, by the logarithms of their components.

    Options of several components (register tiles) have no order in which the next option is a small step.
    """
    sizes = np.log2(np.asarray(hole.options, dtype=np.float64) + 1.0)
    apart = np.abs(sizes[:, None, :] - sizes[None, :, :]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    count = min(2 if sizes.shape[1] == 1 else NEAR, len(hole.options) - 1)
    if count <= 0:
        return np.zeros((len(hole.options), 1), dtype=np.int64)
    return np.argsort(apart, axis=1, kind="stable")[:, :count].astype(np.int64)


@lru_cache(maxsize=4096)
def _alike(
    source: tuple[Hole, ...], target: tuple[Hole, ...]
) -> tuple[Ints, tuple[tuple[int, int, Ints], ...]]:
    """The target's defaults [holes]. For holes that both sketches have: the target's index, the source's
    index, and for each option of the source the nearest option of the target."""
    here = {h.name: n for n, h in enumerate(source)}
    pairs = []
    for n, hole in enumerate(target):
        m = here.get(hole.name)
        if m is not None and len(hole.default) == len(source[m].default):
            a, b = (np.log2(np.asarray(h.options, dtype=np.float64) + 1.0) for h in (source[m], hole))
            apart = np.abs(a[:, None, :] - b[None, :, :]).sum(axis=2)
            pairs.append((n, m, apart.argmin(axis=1).astype(np.int64)))
    defaults = np.asarray([h.options.index(h.default) for h in target], dtype=np.int64)
    return defaults, tuple(pairs)


def transplant(rows: Ints, source: Sketch, target: Sketch) -> Ints:
    """Rows for the target with the source's decisions, or the nearest options; other holes have defaults."""
    defaults, pairs = _alike(source.holes, target.holes)
    out = np.tile(defaults, (len(rows), 1))
    for there, here, nearest in pairs:
        out[:, there] = nearest[rows[:, here]]
    return out


@lru_cache(maxsize=256)
def moves_of(holes: tuple[Hole, ...]) -> tuple[Ints, ...]:
    """`near_options` of every hole. It is cached, because sketches of one task mostly have the same holes."""
    return tuple(near_options(h) for h in holes)


def mutate(rows: Ints, moves: Sequence[Ints], rng: np.random.Generator) -> Ints:
    """Each row with one hole changed: half of the time to a similar option, else to any option."""
    out = rows.copy()
    if not moves or not len(out):
        return out
    hole = rng.integers(0, len(moves), len(out))
    near = rng.random(len(out)) < 0.5
    for n, similar in enumerate(moves):
        mine = np.flatnonzero(hole == n)
        anywhere = rng.integers(0, len(similar), len(mine))
        step = similar[out[mine, n], rng.integers(0, similar.shape[1], len(mine))]
        out[mine, n] = np.where(near[mine], step, anywhere)
    return out


def neighbours(row: Ints, moves: Sequence[Ints]) -> Ints:
    """All rows that differ from `row` by a similar option in one hole."""
    out = []
    for n, similar in enumerate(moves):
        for option in similar[row[n]]:
            if option != row[n]:
                moved = row.copy()
                moved[n] = option
                out.append(moved)
    return np.stack(out) if out else np.zeros((0, len(row)), dtype=np.int64)


def crossover(a: Ints, b: Ints, rng: np.random.Generator) -> Ints:
    """Rows that take every hole from one of two parents."""
    return np.where(rng.random(a.shape) < 0.5, a, b)
