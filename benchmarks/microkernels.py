"""How close hand-built register tiles come to this machine's peak, and how long they take to compile, on one
core.

flock /tmp/autotensor-timing.lock python benchmarks/microkernels.py [--json FILE]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests" / "codegen")]

from codegen_kernels import conv, gemm, pack, pack_filters  # noqa: E402

from autotensor.base.target import host  # noqa: E402
from autotensor.codegen.llvm.assembly import asm_facts  # noqa: E402
from autotensor.codegen.llvm.backend import compile_kernels, compile_program, module_text  # noqa: E402
from autotensor.codegen.peak import measure_peak  # noqa: E402
from autotensor.ir.func import Program  # noqa: E402
from autotensor.runtime.arrays import aligned_empty  # noqa: E402
from autotensor.runtime.linking import loader  # noqa: E402
from autotensor.runtime.native.threads import choose, launch  # noqa: E402

GEMM_TILES = ((6, 4), (4, 4), (8, 3), (10, 2), (14, 2))
CONV_TILES = {
    (56, 64): ((7, 1), (7, 2), (14, 2)),
    (28, 128): ((7, 2), (14, 2)),
    (14, 256): ((7, 2), (14, 2)),
    (7, 512): ((7, 2), (7, 1)),
}


def measure(
    name: str, p: Program, arrays: list[Any], flops: float, peak: float, repeats: int
) -> dict[str, Any]:
    started = time.perf_counter()
    module_text(p, host())
    text_s = time.perf_counter() - started
    seconds = min((compile_kernels(p, host()).seconds for _ in range(3)), key=sum)
    artifact = compile_program(p, host(), name="bench", asm=True)
    facts = asm_facts(artifact.texts["asm"])
    code = loader.load(artifact)
    slots = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    serial, times = choose("serial"), []
    for _ in range(repeats):
        started = time.perf_counter()
        launch(code.entry, ctypes.addressof(slots), 1, provider=serial)
        times.append(time.perf_counter() - started)
    share = flops / min(times) / peak
    total_ms = 1e3 * (text_s + sum(seconds))
    stages = zip(("text", "parse", "passes", "emit"), (text_s, *seconds), strict=True)
    parts = ", ".join(f"{stage} {1e3 * s:.1f}" for stage, s in stages)
    speed = f"{flops / min(times) / 1e9:7.1f} GFLOP/s {share:6.1%}"
    print(f"{name:<24} {speed}   spills {facts.spills}   compile {total_ms:5.1f} ms ({parts})")
    return {
        "name": name,
        "gflops": flops / min(times) / 1e9,
        "share": share,
        "compile_ms": total_ms,
        "seconds": times,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    peak = measure_peak()
    print(f"{host().arch}: peak of one core {peak / 1e9:.1f} GFLOP/s, of two {measure_peak(2) / 1e9:.1f}")
    rng, rows = np.random.default_rng(0), []
    for tile, columns in GEMM_TILES:
        m, n, k = 1024 // tile * tile, 1024 // (16 * columns) * 16 * columns, 1024
        a, b, c = (
            rng.random((m, k), np.float32),
            rng.random((k, n), np.float32),
            aligned_empty((m, n), "float32"),
        )
        arrays = [a, pack(b, 16 * columns), c]
        rows.append(
            measure(
                f"gemm 1024 {tile}x{16 * columns}",
                gemm(m, n, k, tile, columns),
                arrays,
                2.0 * m * n * k,
                peak,
                8,
            )
        )
        assert np.allclose(c, a @ b, rtol=1e-4)
    for (size, channels), tiles in CONV_TILES.items():
        x = rng.random((size + 2, size + 2, channels), np.float32)
        w = rng.random((3, 3, channels, channels), np.float32)
        for tile, columns in tiles:
            y = aligned_empty((size, size, channels), "float32")
            arrays = [x, pack_filters(w, 16 * columns), y]
            p = conv(size, size, channels, channels, tile, columns)
            flops = 2.0 * size * size * channels * channels * 9
            rows.append(measure(f"conv {size}²x{channels} {tile}x{16 * columns}", p, arrays, flops, peak, 30))
    if asked.json:
        asked.json.write_text(json.dumps({"target": host().key(), "peak": peak, "kernels": rows}, indent=1))


if __name__ == "__main__":
    main()
