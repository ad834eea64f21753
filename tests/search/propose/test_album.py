"""Candidates are described once, and an album gives the same descriptions as their scoring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from fakes import TARGET
from zoo import conv, gemm

from autotensor.schedule.sketch import Sketch
from autotensor.search.propose.album import Album, Found
from autotensor.search.propose.population import Ints
from autotensor.search.score.cost_model import PriorModel
from autotensor.search.score.scoring import Scoring
from autotensor.te.workload import Workload
from schedules.generate import generate, structure
from schedules.prior.rates import Rates

WORKLOADS = [gemm(96, 192, 64), conv(9, 5, 40, 3)]


class Counted(Scoring):
    """Counts the candidates that it described."""

    count = 0

    def described(self, choices: Ints) -> tuple[np.ndarray, np.ndarray]:
        self.count += len(choices)
        return super().described(choices)


def scorings(workload: Workload) -> tuple[Counted, ...]:
    rates = Rates.guess(TARGET)
    found = generate(workload.dag, TARGET)
    return tuple(Counted(s, structure(s, workload.dag), TARGET, rates) for s in found)


def drawn(sketches: Sequence[Sketch], seed: int, count: int = 24) -> list[Found]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        n = int(rng.integers(0, len(sketches)))
        row = np.asarray([rng.integers(0, len(h.options)) for h in sketches[n].holes], dtype=np.int64)
        found.append((n, row))
    return found


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_the_scoring_says(workload: Workload, seed: int) -> None:
    """For any earlier contents, and any order of candidates."""
    mine = scorings(workload)
    sketches = [s.sketch for s in mine]
    album = Album(mine)
    for part in range(3):
        wanted = drawn(sketches, 10 * seed + part) + drawn(sketches, 10 * seed)[: 8 * part]
        album.turn(wanted[:20])
        album.add(wanted[20:])
        said = PriorModel().predict(album.matrix, album.prior, "")
        for n in {n for n, _ in wanted}:
            rows = list({row.tobytes(): row for m, row in wanted if m == n}.values())
            d = album.described(n, rows, "bred", said)
            matrix, prior = Scoring.described(mine[n], np.stack(rows))
            np.testing.assert_array_equal(d.matrix, matrix)
            np.testing.assert_array_equal(d.prior, prior)
            np.testing.assert_array_equal(d.said.mean, np.log(prior))
            assert d.looks == mine[n].looks(np.stack(rows))
            assert d.places == tuple((n, row.tobytes()) for row in rows)


def test_what_is_wanted_again_is_not_described_again() -> None:
    mine = scorings(WORKLOADS[0])
    album = Album(mine)
    wanted = drawn([s.sketch for s in mine], 0)
    different = len({(n, row.tobytes()) for n, row in wanted})
    for _ in range(3):
        album.turn(wanted)
        assert sum(s.count for s in mine) == different == len(album)
    album.turn(wanted[:5])
    assert sum(s.count for s in mine) == different
    assert len(album) == len({(n, row.tobytes()) for n, row in wanted[:5]})
