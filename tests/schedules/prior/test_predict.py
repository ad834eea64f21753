"""The prior: the reasons for slow candidates, and the use of measured rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from zoo import conv, gemm, scheduled

from autotensor.base.target import Target
from autotensor.schedule.loop_picture import picture
from autotensor.search.machine.calibration import rates_of
from autotensor.te.workload import Workload
from schedules.cpu import RECORDS, ZEN4, cpu_of, register
from schedules.generate import generate
from schedules.prior.predict import predict, stage_terms
from schedules.prior.rates import MicroKernels, Rates

TARGET = Target(
    "llvm",
    num_cores=1,
    vector_bytes=32,
    vector_registers=32,
    cache_bytes=(32 << 10, 1 << 20, 32 << 20),
)
# 64-byte vectors, 32 registers, and caches unlike those of any of our records
MADE_UP = Target(
    "llvm", "madeup1", num_cores=2, vector_bytes=64, vector_registers=32, cache_bytes=(64 << 10, 3 << 20)
)
RATES = Rates(6e10, (5e10, 4e10, 1.5e10), 1.5e10, region_s=0.0)


def seconds(s: object, rates: Rates = RATES) -> float:
    return float(stage_terms(s, 1, TARGET, rates).total[0])  # type: ignore[arg-type]


def test_a_measured_step_replaces_the_formula() -> None:
    s = scheduled(gemm(24, 64, 32, epilogue=False), 6, 2)
    slow = replace(RATES, kernels=MicroKernels(8, {(6, 2): (100.0, 100.0, 100.0)}))
    assert seconds(s, slow) > 5 * seconds(s)
    other_width = replace(RATES, kernels=MicroKernels(16, {(6, 2): (100.0, 100.0, 100.0)}))
    other_tile = replace(RATES, kernels=MicroKernels(8, {(4, 2): (100.0, 100.0, 100.0)}))
    assert seconds(s, other_width) == seconds(s, other_tile) == seconds(s)


def test_vectors_from_far_away_cost_what_was_measured() -> None:
    kernels = MicroKernels(8, {(2, 2): (4.0, 40.0, 40.0)})
    near = scheduled(gemm(960, 16, 64, epilogue=False), 2, 2)  # 4 KiB of vectors
    far = scheduled(gemm(960, 1024, 64, epilogue=False), 2, 2)  # 256 KiB, read again for every row
    known = replace(RATES, kernels=kernels)
    flops = [2 * 960 * n * 64 for n in (16, 1024)]
    assert seconds(far, known) / flops[1] > 3 * seconds(near, known) / flops[0]


def test_crowded_rows_are_slow() -> None:
    crowded, spread = (scheduled(gemm(56, 64, k, epilogue=False), 28, 1) for k in (1024, 1040))
    assert seconds(crowded) / 1024 > 3 * seconds(spread) / 1040


def test_teams_are_as_fast_as_measured() -> None:
    s = scheduled(gemm(24, 64, 32, epilogue=False), 6, 2)
    two = TARGET.with_threads(2)
    halved = replace(RATES, team_flops=6e10)  # two threads together are no faster than one
    free = stage_terms(s, 1, two, RATES)
    assert stage_terms(s, 1, two, halved).parts[0][0] >= free.parts[0][0]


def test_transforms_of_winograd_cost_little() -> None:
    """They take a fifth of the time, not most of it."""
    workload = conv(56, 64, 64, 3)
    sketch = next(s for s in generate(workload.dag, TARGET) if "winograd" in s.made_by and len(s.steps) > 30)
    from autotensor.schedule.primitives.layout import Layout
    from autotensor.schedule.trace import Trace

    steps = sketch.fill(sketch.defaults()).steps
    state = Trace(tuple(s for s in steps if not isinstance(s, Layout))).replay(workload.dag)
    p = picture(state, {})
    total, terms = predict(p, TARGET, RATES)
    computing = {s.name.rpartition(".")[2]: t.compute[0] for s, t in zip(p.stages, terms, strict=True)}
    products = computing["local"]
    assert products > 0.5 * sum(computing.values())
    direct = 2 * 56 * 56 * 64 * 64 * 9 / RATES.flops
    assert total[0] < direct


@pytest.mark.parametrize("workload", [gemm(64, 96, 40), conv(14, 16, 32, 3)], ids=lambda w: w.name)
@pytest.mark.parametrize("target", [TARGET, MADE_UP], ids=["plain", "made up"])
def test_the_whole_is_at_most_the_sum_of_its_stages(workload: Workload, target: Target) -> None:
    for sketch in generate(workload.dag, target):
        from autotensor.schedule.primitives.layout import Layout
        from autotensor.schedule.trace import Trace

        steps = sketch.fill(sketch.defaults()).steps
        state = Trace(tuple(s for s in steps if not isinstance(s, Layout))).replay(workload.dag)
        total, terms = predict(picture(state, {}), target, RATES)
        parts = np.sum([t.total for t in terms], axis=0)
        longest = max(float(np.maximum.reduce(t.parts)[0]) for t in terms)
        assert longest <= total[0] <= parts[0] * (1 + 1e-9)


def test_weights_that_stay_in_the_caches_are_not_read_again() -> None:
    """512 kB of weights come from memory in a whole model, and from the second cache if calls follow one
    another."""
    s = scheduled(gemm(8, 256, 512, epilogue=False), 4, 2)
    cold, warm = (stage_terms(s, 1, TARGET, replace(RATES, warm_weights=w)) for w in (False, True))
    assert cold.moves[2][0] == pytest.approx(4 * 256 * 512 / RATES.memory_bandwidth)
    assert warm.moves[1][0] == warm.moves[2][0] == 0.0
    assert warm.moves[0][0] == cold.moves[0][0] > 0.0
    assert warm.total[0] < cold.total[0]


# -- a processor without a record ---------------------------------------------------------------------------

CALIBRATED = {
    "clock": 2.5e9,
    "flops.core": 2 * 16 * 2.5e9,  # one FMA of a whole register a cycle
    "bandwidth.L2": 6e10,
    "bandwidth.memory.core": 1e10,
    "region.t2": 4e-6,
}


@pytest.fixture
def two_alike() -> Iterator[None]:
    """Records of the made-up processor's features, one and two FMAs a cycle, and unlike steps."""
    before = list(RECORDS)
    like = {"archs": (), "cache_bytes": MADE_UP.cache_bytes}
    register(replace(ZEN4, name="one", multiplies=1.0, prior_step=1_000.0, **like))
    register(replace(ZEN4, name="two", multiplies=2.0, prior_step=0.0, **like))
    yield
    RECORDS[:] = before
    cpu_of.cache_clear()


def calibrated(**changed: float) -> Rates:
    """Rates in the form of the log; some of them have other values."""
    return rates_of(CALIBRATED | {n.replace("_", "."): v for n, v in changed.items()}, MADE_UP)


def test_calibrated_multiplies_choose_the_nearest_record(two_alike: None) -> None:
    s = scheduled(gemm(24, 64, 32, epilogue=False), 6, 2)
    one = calibrated()
    assert one.multiplies == 1.0
    two = replace(one, multiplies=calibrated(flops_core=4 * 16 * 2.5e9).multiplies)
    assert two.multiplies == 2.0
    unknown = replace(one, multiplies=None)
    slow, fast, guess = (float(stage_terms(s, 1, MADE_UP, r).compute[0]) for r in (one, two, unknown))
    assert slow > 10 * fast
    assert guess == fast, "where nobody measured, two"


def test_what_was_calibrated_is_taken_and_no_record_s_guess() -> None:
    s = scheduled(gemm(240, 1024, 64, epilogue=False), 6, 2)
    rates = calibrated()
    assert (rates.flops, rates.bandwidths, rates.region_s) == (8e10, (6e10, 1e10), 4e-6)
    terms, slower = (stage_terms(s, 1, MADE_UP, r) for r in (rates, calibrated(bandwidth_memory_core=1e9)))
    assert slower.moves[-1] == pytest.approx(10 * terms.moves[-1])
    assert stage_terms(s, 1, MADE_UP, calibrated(flops_core=4e10)).compute == pytest.approx(2 * terms.compute)
