"""The count of cycles behind Winograd's defaults: the constants for each processor, and the choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotensor.base.target import parse
from schedules.algorithms.winograd import F2, F4
from schedules.cpu import ZEN3, ZEN4, ZEN5
from schedules.kit.winograd_cost import Problem, Variant, best_option, cycles, direct_cycles

SERVER = (32 << 10, 1 << 20, 32 << 20)  # caches of the processors that the constants were fitted on
BY_TILES, BY_COLUMNS = Variant(F4, by_columns=False), Variant(F4, by_columns=True)
VARIANTS = tuple(Variant(tf, by_columns) for tf in (F4, F2) for by_columns in (False, True))


def problem(arch, size, channels, threads=1, depth=1, taps=1):
    target = replace(parse(f"llvm -mcpu={arch} -threads={threads}"), cache_bytes=SERVER)
    return Problem(depth, size, size, channels, channels, taps, target.lanes(32), target)


def cheapest(p):
    return min(VARIANTS, key=lambda v: cycles(p, v, best_option(p, v)))


@pytest.mark.parametrize(
    ("arch", "cpu"),
    [
        ("znver5", ZEN5),
        ("znver4", ZEN4),
        ("sapphirerapids", ZEN4),
        ("x86-64-v4", ZEN4),
        ("neoverse-n1", ZEN4),
        ("znver3", ZEN3),
        ("x86-64-v3", ZEN3),
    ],
)
def test_costs_follow_the_processors_name(arch, cpu):
    assert problem(arch, 14, 256).costs is cpu.winograd


def test_halves_of_registers_are_not_two_whole_ones():
    """A Zen 5 restricted to AVX2 has 16 registers."""
    narrow = parse("llvm -mcpu=znver5 -mattr=+avx2,+fma")
    assert Problem(1, 14, 14, 256, 256, 1, 8, narrow).costs is ZEN3.winograd


@pytest.mark.parametrize("arch", ["znver4", "sapphirerapids"])
@pytest.mark.parametrize(
    ("size", "channels", "chosen"),
    [
        (56, 64, (1, 14, 1, 14, 2, 32)),
        (28, 128, (1, 7, 1, 7, 2, 32)),
        (14, 256, (1, 4, 1, 4, 4, 64)),
        (7, 512, (2, 2, 2, 2, 4, 64)),
    ],
)
def test_choices_where_one_vector_is_counted_a_cycle_stay(arch, size, channels, chosen):
    """ResNet's layers on one core have the same choices as before the third set of constants."""
    p = problem(arch, size, channels)
    assert best_option(p, BY_TILES) == chosen
    assert cheapest(p) == BY_TILES


@pytest.mark.parametrize(
    ("size", "channels", "threads", "variant", "chosen"),
    [
        (56, 64, 2, BY_TILES, (1, 14, 1, 14, 2, 32)),
        (14, 256, 1, BY_TILES, (4, 4, 2, 4, 2, 32)),  # 0.39 ms; blocks of four tiles, as on Zen 4: 0.46
        (14, 256, 2, BY_TILES, (2, 4, 2, 4, 2, 32)),  # 0.20 ms instead of 0.24
        (7, 512, 1, Variant(F2, by_columns=False), (4, 4, 2, 4, 2, 32)),  # 0.63 ms; F(4x4) 0.98, direct 0.80
        (7, 512, 2, Variant(F2, by_columns=True), (4, 4, 2, 4, 2, 32)),  # 0.35 ms; direct 0.41
        (28, 512, 1, BY_COLUMNS, (4, 7, 1, 7, 3, 48)),  # 6.1 ms; by tiles 6.5 to 9, direct 16
        (28, 512, 2, BY_COLUMNS, (4, 7, 1, 7, 2, 32)),  # 3.0 ms; by tiles 3.2 to 5.3, direct 7.9
        (28, 256, 1, BY_COLUMNS, (4, 7, 1, 7, 2, 32)),  # 1.13 ms; by tiles 1.23 to 1.9
        (56, 256, 1, BY_TILES, (1, 14, 1, 14, 2, 32)),  # 4.7 ms; by columns 5.4 to 6.8
    ],
)
def test_two_whole_vectors_a_cycle_want_larger_blocks(size, channels, threads, variant, chosen):
    """As measured on a Zen 5: weights are read half as often, and F(2x2) has half as many at 7 x 7; a
    panel of columns is in the cache for the next block where all weights are not."""
    p = problem("znver5", size, channels, threads)
    assert cheapest(p) == variant
    assert best_option(p, variant) == chosen
    assert cycles(p, variant, chosen) <= direct_cycles(p) / p.costs.sure


@pytest.mark.parametrize(("arch", "taken"), [("znver4", True), ("znver5", False)])
def test_weights_of_three_dimensions_leave_it_to_the_direct_kernel(arch, taken):
    """16 planes of 7 x 7, 512 channels, one core of a Zen 5: direct 39.5 ms, the best of the others 38.6."""
    p = problem(arch, 7, 512, threads=1, depth=16, taps=3)
    v = cheapest(p)
    assert (cycles(p, v, best_option(p, v)) <= direct_cycles(p) / p.costs.sure) == taken
