"""A matrix product in OpenCL C as people write it by hand. Generated kernels must be faster.

    a work-group: TM x TN of C, TK terms at a time in local memory, fetched together, two barriers a turn
    a work-item:  WM x WN of that in registers, columns in vectors of WIDTH

`best(device, n)` compiles it for the sizes of `TILES` that fit, checks each, and returns the fastest. Source:
C. Nugteren's tutorial on OpenCL SGEMM (2014), kernels 6 and 7: local tiles, two-dimensional register
blocking, wide loads. The sizes are those of the tutorial, and wider ones, which suit a CPU's vectors.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from statistics import median

import numpy as np

from autotensor.base.errors import AutotensorError
from autotensor.runtime.device.contract import Device, DeviceCall

REPEAT, LEAST_S = 7, 0.02
NEAR = 1e-4  # largest error, as a share of the largest element of the result

SOURCE = """
#define VECTOR_(n) float##n
#define VECTOR(n) VECTOR_(n)
#define LOAD_(n) vload##n
#define LOAD(n) LOAD_(n)
#define STORE_(n) vstore##n
#define STORE(n) STORE_(n)
#define X (TN / WN)
#define Y (TM / WM)

__kernel __attribute__((reqd_work_group_size(X, Y, 1)))
void gemm(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
    __local float a[TM * TK];
    __local float b[TK * TN];
    const int x = get_local_id(0), y = get_local_id(1), me = y * X + x;
    const int row = get_group_id(1) * TM, column = get_group_id(0) * TN;
    VECTOR(WIDTH) sum[WM][WN / WIDTH];
    #pragma unroll
    for (int m = 0; m < WM; ++m) {
        #pragma unroll
        for (int n = 0; n < WN / WIDTH; ++n) sum[m][n] = 0.0f;
    }
    for (int k = 0; k < N; k += TK) {
        for (int at = me * 4; at < TM * TK; at += X * Y * 4)
            vstore4(vload4(0, A + (row + at / TK) * N + k + at % TK), 0, a + at);
        for (int at = me * WIDTH; at < TK * TN; at += X * Y * WIDTH)
            STORE(WIDTH)(LOAD(WIDTH)(0, B + (k + at / TN) * N + column + at % TN), 0, b + at);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int t = 0; t < TK; ++t) {
            VECTOR(WIDTH) right[WN / WIDTH];
            #pragma unroll
            for (int n = 0; n < WN / WIDTH; ++n) right[n] = LOAD(WIDTH)(0, b + t * TN + (n * X + x) * WIDTH);
            #pragma unroll
            for (int m = 0; m < WM; ++m) {
                const float left = a[(y * WM + m) * TK + t];
                #pragma unroll
                for (int n = 0; n < WN / WIDTH; ++n) sum[m][n] = sum[m][n] + left * right[n];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    #pragma unroll
    for (int m = 0; m < WM; ++m) {
        #pragma unroll
        for (int n = 0; n < WN / WIDTH; ++n)
            STORE(WIDTH)(sum[m][n], 0, C + (row + y * WM + m) * N + column + (n * X + x) * WIDTH);
    }
}
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, columns and terms of a work-group; rows and columns of a work-item; lanes of its vectors."""

    tm: int
    tn: int
    tk: int
    wm: int
    wn: int
    width: int

    @property
    def block(self) -> tuple[int, int, int]:
        return self.tn // self.wn, self.tm // self.wm, 1

    def grid(self, n: int) -> tuple[int, int, int]:
        return n // self.tn, n // self.tm, 1

    def source(self, n: int) -> bytes:
        sizes = zip(("TM", "TN", "TK", "WM", "WN", "WIDTH"), astuple(self), strict=True)
        head = "".join(f"#define {name} {value}\n" for name, value in (*sizes, ("N", n)))
        return (head + SOURCE).encode()


TILES = (
    Tile(32, 32, 16, 4, 4, 4),
    Tile(64, 64, 16, 4, 4, 4),
    Tile(64, 64, 16, 8, 8, 8),
    Tile(64, 64, 16, 8, 16, 16),
    Tile(64, 128, 32, 8, 16, 16),
    Tile(64, 64, 32, 8, 32, 16),
    Tile(64, 64, 64, 8, 32, 16),
    Tile(32, 64, 64, 8, 32, 16),
)


def best(device: Device, n: int, tiles: tuple[Tile, ...] = TILES) -> tuple[float, Tile]:
    """The seconds of the fastest tile for an n x n product, and that tile. Raises ValueError if no tile
    fits."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    memories = tuple(device.allocate(a.nbytes) for _ in range(3))
    device.write(memories[0], a)
    device.write(memories[1], b)
    found = []
    for tile in (t for t in tiles if n % t.tm == n % t.tn == n % t.tk == 0):
        try:
            run = device.plan((tile.source(n),), [DeviceCall("gemm", memories, tile.grid(n), tile.block)])
        except AutotensorError:
            continue  # too many work-items or too much memory for this device
        run()
        c = np.empty_like(a)
        device.read(memories[2], c)
        wanted = a @ b
        assert np.abs(c - wanted).max() <= NEAR * np.abs(wanted).max(), tile
        count = max(1, round(LEAST_S / device.seconds(run, 3) * 3))
        samples = [device.seconds(run, count) / count for _ in range(REPEAT)]
        found.append((median(samples), tile))
    if not found:
        raise ValueError(f"no tile fits {n} x {n} on {device.name}.")
    return min(found, key=lambda f: f[0])
