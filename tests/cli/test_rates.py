"""Calibrated rates as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from autotensor.base.target import Target
from autotensor.cli.rates import rate_lines, spoilt

TARGET = Target("llvm", vector_bytes=64, num_cores=2)
WHEN = datetime(2026, 11, 20, 13, 0, tzinfo=UTC)
VALUES = {
    "clock": 3.5e9, "flops.core": 1.1e11, "flops.t2": 2.1e11,
    "bandwidth.L1": 2e11, "bandwidth.L2": 1e11, "bandwidth.memory.core": 3e10,
    "copying.L2": 9e10, "copying.L2.t2": 1.7e11, "copying.L3": 8e10,
    "bandwidth.L1.t2": 4e11, "bandwidth.L2.t2": 2e11, "bandwidth.memory.t2": 4e10,
    "region.t2": 1.5e-6, "disturbed": 0.1, "others": 0.0,
}  # fmt: skip
KERNELS = {
    f"kernel.v64.{shape}.{level}": value
    for shape, values in {
        "6x4": (24.0, 24.0, 24.5),
        "1x1": (4.0, 4.0, 4.0),
        "14x2": (28.0, 29.0, 31.0),
    }.items()
    for level, value in zip(("L1", "L2", "L3"), values, strict=True)
}


def lines(values: dict[str, float]) -> str:
    return "\n".join(
        rate_lines({n: {"value": v, "unit": "", "measured": WHEN} for n, v in values.items()}, TARGET)
    )


def test_everything_measured() -> None:
    assert (
        lines(VALUES | KERNELS)
        == """\
peak 110.0 GFLOP/s a core, 98% of nominal (1 x 16 multiply-adds a cycle at 3.50 GHz)
peak 210.0 GFLOP/s of 2 threads, 95% of 2 cores
GB/s read        L1      L2  memory
1 thread      200.0   100.0    30.0
2 threads     400.0   200.0    40.0
  copied         L2      L3
1 thread       90.0    80.0
2 threads     170.0
parallel region of 2 threads: 1.5 us
micro-kernels: 3 measured; share of peak with vectors from L1, L2, L3:
   6 rows x  64 columns  100%  100%   98%
  14 rows x  32 columns  100%   97%   90%
   1 rows x  16 columns   25%   25%   25%
measured 2026-11-20 13:00 UTC"""
    )


def test_two_multiply_adds_a_cycle() -> None:
    assert "2 x 16 multiply-adds a cycle" in lines(VALUES | {"flops.core": 2.2e11})


def test_a_machine_that_was_not_quiet() -> None:
    alone = {n: v for n, v in VALUES.items() if ".t2" not in n} | {"disturbed": 0.8, "others": 1.72}
    text = lines(alone)
    assert "2 threads" not in text
    assert "micro-kernels: not measured" in text
    rates = {n: {"value": v} for n, v in alone.items()}
    assert "other programs used 1.7 cores meanwhile and disturbed 80% of the samples" in spoilt(rates)
    assert spoilt({n: {"value": v} for n, v in VALUES.items()}) == ""


def test_narrow_terminals_have_sentences() -> None:
    rates = {n: {"value": v, "unit": "", "measured": WHEN} for n, v in VALUES.items()}
    said = list(rate_lines(rates, TARGET, 25))
    assert said[2:6] == [
        "GB/s read by 1 thread: L1 200.0, L2 100.0, memory 30.0",
        "GB/s read by 2 threads: L1 400.0, L2 200.0, memory 40.0",
        "GB/s copied by 1 thread: L2 90.0, L3 80.0",
        "GB/s copied by 2 threads: L2 170.0",
    ]
    assert list(rate_lines(rates, TARGET, 60)) == list(rate_lines(rates, TARGET))
