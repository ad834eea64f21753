"""Training of a network with a user's own operator, without a hand-written gradient.

    python examples/09_train.py [--steps 400] [--rows 128] [--trials 0] [--db my.db]

Two dense layers distinguish the points of two spirals. Their smooth activation is in no library. Forward
pass, backward pass and update are one native program; its plan lists the program's kernels.
"""

import argparse
from statistics import median

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.autodiff.optimizers import Adam

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=400)
options.add_argument("--rows", type=int, default=128)
options.add_argument("--trials", type=int, default=0)
options.add_argument("--db", default=None, help="tuning log; else your own")
asked = options.parse_args()
rows, width = asked.rows, 32
rng = np.random.default_rng(0)


def bump(x):
    """x / (1 + x²): an activation that returns to zero."""
    return te.compute(x.shape, lambda i, j: x[i, j] / (1.0 + x[i, j] * x[i, j]), name="bump")


def spirals(count):
    """Points of two spirals, and the spiral to which each point belongs (-1 or 1)."""
    side = rng.integers(0, 2, count) * 2 - 1
    turn = rng.uniform(0.5, 2.0, count) * np.pi
    points = np.stack([np.cos(turn), np.sin(turn)], 1) * (turn * side)[:, None] / 3
    noisy = points + 0.05 * rng.standard_normal(points.shape)
    return noisy.astype(np.float32), side.astype(np.float32)[:, None]


def drawn(*shape, name):
    return at.parameter((rng.standard_normal(shape) * np.sqrt(2 / shape[-1])).astype(np.float32), name)


x, y = at.input((rows, 2), name="points"), at.input((rows, 1), name="side")
hidden = at.call(
    bump, at.ops.dense(x, drawn(width, 2, name="w1"), at.parameter(np.zeros(width, np.float32), "b1"))
)
hidden = at.call(bump, at.ops.dense(hidden, drawn(width, width, name="w2")))
score = at.ops.dense(hidden, drawn(1, width, name="w3"))
loss = at.ops.mean(at.ops.softplus(-1.0 * score * y))

step = at.training_step(loss, optimizer=Adam(0.02), trials=asked.trials, db=asked.db)
print("kernels:")
print(step.module.source("plan"))

losses = [step(*spirals(rows)) for _ in range(asked.steps)]
model = at.compile_model(step.trained(score)[0], db=":memory:")
points, side = spirals(rows)
right = float((np.sign(model(points)) == side).mean())
print(f"\nloss {losses[0]:.3f} at first, {losses[-1]:.3f} after {asked.steps} steps")
print(f"{right:.0%} of new points right")

name = next(k for k in step.module.artifact.texts if k.startswith("trace:") and "d_bump" in k)
print("\nschedule of the activation's gradient (in canonical names):")
print(step.module.source(name))
arrays = [*spirals(rows), *(np.array(a) for a in step.values.values())]
print(f"time: {median(step.module.time(arrays)) * 1e6:.0f} µs a step")
