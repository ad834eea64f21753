"""A parallel reduction over pairs (argmax): threads find the best pairs of their parts, which are joined.

    python examples/08_argmax_rfactor.py [--size 4000000] [--parts 8]

A reducer is any function that joins two partial results; `rfactor` works for all of them.
"""

import argparse
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te

options = argparse.ArgumentParser()
options.add_argument("--size", type=int, default=4_000_000)
options.add_argument("--parts", type=int, default=8)
asked = options.parse_args()
n = asked.size


def larger(x, y):
    """The pair (index, value) with the larger value; the first pair if the values are equal."""
    first = x[1] >= y[1]
    return te.select(first, x[0], y[0]), te.select(first, x[1], y[1])


def least(place, value):
    """A pair whose value is less than or equal to every value, for the types of the two arguments."""
    return te.const(-1, place), te.min_value(value)


argmax = te.comm_reducer(larger, least, name="argmax")

A = te.placeholder((n,), name="A")
k = te.reduce_axis(n, name="k")
place, value = te.compute((), lambda: argmax((k.var, A[k]), axis=k), name="T")

plain = te.create_schedule(place.op)
s = te.create_schedule(place.op)
ko, ki = s[place].split(k, nparts=asked.parts)
part = s.rfactor(place, ko)
s[part].parallel(part.op.axis[0])

print("schedule:")
print(s.trace)
print("\nloops:")
print(at.lower(s, [A, place, value]))

a = np.random.default_rng(0).random(n, np.float32)
print()
for label, schedule in (("as written", plain), ("in parts", s)):
    f = at.build(schedule, [A, place, value])
    where, largest = f(a)
    assert (int(where), float(largest)) == (int(a.argmax()), float(a.max()))
    print(f"time: {label} {median(f.time([a])) * 1e3:.2f} ms")
