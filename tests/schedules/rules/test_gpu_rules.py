"""Default schedules for GPUs stay within the target's limits: by the shape of the work, for cards and for
cores."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from autotensor import te
from autotensor.base.target import Target, parse
from autotensor.ir.func import Program
from autotensor.ir.stmt import If
from autotensor.ir.visit import collect
from autotensor.lowering.pipeline import lower
from autotensor.schedule.loop_picture import picture
from autotensor.schedule.primitives.bind import Bind
from autotensor.schedule.primitives.split import SplitStep
from autotensor.schedule.trace import Trace
from autotensor.search.propose.population import sample
from autotensor.te.dag import ComputeDAG
from schedules.generate import default_trace, generate, structure
from schedules.kit.gpu_threads import powers_of_two
from schedules.prior.predict import predict
from schedules.prior.rates import Rates

TARGETS = ("opencl -device=gpu", "cuda -arch=sm_80", "cuda -arch=sm_90")


def product(m: int, n: int, k_: int) -> ComputeDAG:
    a, b = te.placeholder((m, k_), name="A"), te.placeholder((k_, n), name="B", constant=True)
    k = te.reduce_axis(k_, name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return ComputeDAG.of([a, b, te.compute((m, n), lambda i, j: te.maximum(c[i, j], 0.0), name="D")])


def sums(rows: int, terms: int) -> ComputeDAG:
    a, k = te.placeholder((rows, terms), name="A"), te.reduce_axis(terms, name="k")
    return ComputeDAG.of([a, te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="S")])


def lowered(dag: ComputeDAG, target: Target) -> Program:
    return lower(default_trace(dag, target).replay(dag), target)


@pytest.mark.parametrize("text", [*TARGETS, "opencl -device=gpu -cores=32"])
@pytest.mark.parametrize(
    "shape",
    [(1, 1000, 512), (7, 5, 3), (512, 512, 512), (49, 2048, 512), (33, 17, 129), (24, 32320, 1024)],
)
@pytest.mark.sample(8)
def test_defaults_of_products_keep_the_limits(text: str, shape: tuple[int, int, int]) -> None:
    dag, target = product(*shape), parse(text)
    (kernel,) = lowered(dag, target).run  # the ReLU is computed with the tile
    assert kernel.launch is not None
    assert prod(kernel.launch.block) <= target.max_threads_per_block
    assert kernel.launch.shared_bytes <= target.max_shared_bytes


def test_cards_share_operands_and_cores_do_not() -> None:
    dag = product(512, 512, 512)
    assert "shared" in default_trace(dag, parse("cuda")).to_python()
    assert "shared" in default_trace(dag, parse("opencl -device=gpu")).to_python()
    assert "shared" not in default_trace(dag, parse("opencl")).to_python()


def test_cores_get_the_schedules_of_their_processor() -> None:
    """Blocks are iterations of its parallel loop."""
    dag, target = product(64, 128, 96), parse("opencl -cores=2")  # on one core there is one block
    assert default_trace(dag, target) == default_trace(dag, target.processor())
    assert generate(dag, target) == generate(dag, target.processor())
    (kernel,) = lowered(dag, target).run
    assert kernel.launch is not None
    assert prod(kernel.launch.block) == 1
    assert kernel.launch.grid[0] > 1


def test_guards_are_cut_where_no_loop_is_bound() -> None:
    x = te.placeholder((10,), name="x")
    y = te.compute((10,), lambda i: x[i] + 1.0, name="y")
    dag, split = ComputeDAG.of([x, y]), SplitStep("y", "i", (4,))
    target = parse("opencl")
    (cut,) = lower(Trace((split,)).replay(dag), target).run
    (bound,) = lower(Trace((split, Bind("y", "i.0", "blockIdx.x"))).replay(dag), target).run
    assert not collect(cut.body, If)
    assert collect(bound.body, If)


def test_cards_get_a_block_for_every_multiprocessor() -> None:
    target = parse("cuda -arch=sm_80")
    for n in (1024, 4096):
        (kernel,) = lowered(product(n, n, n), target).run
        assert kernel.launch is not None
        assert prod(kernel.launch.grid) >= target.num_cores


def test_threads_share_a_long_sum_on_a_card_only() -> None:
    dag = sums(64, 4096)
    (card,) = lowered(dag, parse("cuda")).run
    assert card.launch is not None
    assert (card.launch.grid[0], card.launch.block[0]) == (64, 256)
    (cores,) = lowered(dag, parse("opencl")).run
    assert cores.launch is not None
    assert prod(cores.launch.grid) * prod(cores.launch.block) >= 64


def test_a_scalar_is_one_thread() -> None:
    x = te.placeholder((), name="x")
    dag = ComputeDAG.of([x, te.compute((), lambda: x() + 1.0, name="y")])
    (kernel,) = lowered(dag, parse("opencl")).run
    assert kernel.launch is not None
    assert prod(kernel.launch.grid) * prod(kernel.launch.block) == 1


@pytest.mark.parametrize("text", TARGETS)
def test_every_option_of_a_tile_fits_and_the_prior_ranks_them(text: str) -> None:
    dag, target = product(128, 256, 64), parse(text)
    rng = np.random.default_rng(0)
    for sketch in generate(dag, target):
        state = structure(sketch, dag)
        population = sample(sketch, state, 64, rng)
        seconds, terms = predict(population.picture, target, Rates.guess(target))
        assert np.all(np.isfinite(seconds))
        assert np.all(seconds > 0)
        assert len(terms) == len(population.picture.stages)


def test_prior_of_a_card_prefers_tiles_with_reuse() -> None:
    """A thread with one element loads two operands in each step; a tile of 4 x 8 loads three vectors for
    eight products."""
    dag, target = product(2048, 2048, 2048), parse("cuda -arch=sm_80")
    sketch = next(s for s in generate(dag, target) if "shared" in str(s.steps))
    hole = next(h for h in sketch.holes if h.name.endswith("/tile"))
    seconds = {}
    for option in hole.options:
        trace = sketch.fill({**sketch.defaults(), hole.name: option})
        seconds[option] = float(predict(picture(trace.replay(dag), {}), target, Rates.guess(target))[0][0])
    small, large = min(hole.options, key=prod), hole.default
    assert seconds[large] < seconds[small]


def test_powers_of_two() -> None:
    assert powers_of_two(32, 256) == (32, 64, 128, 256)
