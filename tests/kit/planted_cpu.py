"""A made-up processor, and the figures that probes would measure on it."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt

from autotensor.base.target import Target
from autotensor.search.machine.cpu_probes import LADDER, Pass, product_tiles
from schedules.cpu import ZEN4, Cpu

CLOCK = 2.5e9
# every field that probes measure differs from Zen 4's, if no two of them contradict each other
PLANTED = replace(
    ZEN4,
    name="made-up",
    archs=("madeup1",),
    multiplies=2.0,
    cache_bytes=(64 << 10, 4 << 20, 16 << 20),
    ways=16,
    clock=CLOCK,
    latency=5,
    accumulators=10,
    l2_rate=48.0,
    l3_rate=4.0,
    bandwidths=(48 * CLOCK, 8 * CLOCK, 2 * CLOCK),
    memory=7.5e9,
    region=6_000,
    join=900,
    panel_wait=0.5,
    stream_cost=3.0,
    tile_stream=9.0,
    halves=inf,
)


def target_of(cpu: Cpu, cores: int = 2) -> Target:
    """A target that is such a processor, by its features."""
    return Target(
        "llvm",
        cpu.archs[0],
        num_cores=cores,
        vector_bytes=cpu.vector_bytes,
        vector_registers=cpu.vector_registers,
        cache_bytes=cpu.cache_bytes,
    )


def planted(cpu: Cpu, cores: int = 2) -> Pass:
    """Figures of one pass, none of it disturbed."""
    l2, l3, memory = cpu.bandwidths
    assert abs(sqrt(l3 * memory) / cpu.clock / cpu.l3_rate - 1) < 0.05, "as a machine would have it"
    figures = {
        "clock": cpu.clock,
        "fma": cpu.multiplies,
        "half": cpu.multiplies * (1 if cpu.halves == inf else 2),
        "handing": 1e-7,
        "bandwidth.L2": l2,
        "bandwidth.L3": l3,
        "bandwidth.memory.core": memory,
        "ways": cpu.ways,
        "kernel.1x4.L1": 8.0,
        "kernel.1x4.L3": 4 * cpu.tile_stream,
    }
    figures |= {f"chains.{n}": min(cpu.multiplies, n / cpu.latency) for n in LADDER}
    if cores > 1:
        figures |= {
            f"bandwidth.memory.t{cores}": cpu.memory,
            "handing.t2": 1e-7 + cpu.region / cpu.clock,
            "parts.t2": 3e-6,
            "joining.t2": 3e-6 + cpu.join / cpu.clock,
        }
    for t in product_tiles(target_of(cpu))[1:]:
        name, near = f"kernel.{t.rows}x{t.vectors}", float(t.rows * t.vectors)
        figures |= {
            f"{name}.L1": near,
            f"{name}.L2": near + t.vectors * cpu.panel_wait,
            f"{name}.L3": near + t.vectors * cpu.stream_cost,
        }
    return figures
