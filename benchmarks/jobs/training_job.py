"""Steps of training as a contestant's job: `cnn@b32`, `mlp@b64`, with `@adam` another optimiser.

    step = forward pass, backward pass, update of the weights, and the loss as a Python float

All contestants start from the same weights and use the same batch in every step. The losses of the first
steps are compared. cnn: two convolutions with pools and a dense layer, on 8x8 digits. mlp: 784 x 100 x 10, as
in docs/decks.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from peers import KINDS, Ready, Spec

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = ("mlp@b32", "mlp@b64", "cnn@b32", "cnn@b64", "mlp@b64@adam", "cnn@b64@adam")
FIRST = 8  # steps whose losses are compared
RATES = {"sgd": 0.01, "adam": 1e-4}  # small, so that no NaN occurs in the timed steps


@dataclass(frozen=True)
class TrainingJob:
    """One network, batch size and optimiser."""

    model: str
    batch: int
    optimizer: str

    @classmethod
    def named(cls, name: str) -> TrainingJob:
        """The job of that name. Raises ValueError for an unknown name."""
        model, batch, optimizer = (*name.split("@"), "", "")[:3]
        optimizer = optimizer or "sgd"
        if model not in ("cnn", "mlp") or not batch[1:].isdigit() or optimizer not in RATES:
            raise ValueError(f"{name!r} is no step of training. They are called {', '.join(NAMES)}.")
        return cls(model, int(batch[1:]), optimizer)

    @property
    def rate(self) -> float:
        return RATES[self.optimizer]

    def data(self) -> tuple[Array, Array]:
        """One batch: images, and labels as rows of the identity."""
        rng = np.random.default_rng(1)
        shape = (self.batch, 1, 8, 8) if self.model == "cnn" else (self.batch, 784)
        x = rng.random(shape, dtype=np.float32)
        return x, np.eye(10, dtype=np.float32)[rng.integers(0, 10, self.batch)]

    def weights(self) -> dict[str, Array]:
        """First values of the parameters."""
        rng = np.random.default_rng(0)
        shapes = {"w1": (16, 1, 3, 3), "w2": (32, 16, 3, 3), "w3": (10, 128)}
        if self.model == "mlp":
            shapes = {"w1": (100, 784), "w2": (10, 100)}
        found: dict[str, Array] = {}
        for name, shape in shapes.items():
            drawn = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
            found |= {name: drawn.astype(np.float32), f"b{name[1:]}": np.zeros(shape[0], np.float32)}
        return found

    # -- autotensor ------------------------------------------------------------------------------------------

    def loss(self) -> Any:
        """autotensor's graph of the loss."""
        import autotensor as at
        from autotensor.graph.build import ops

        x, t = (at.input(a.shape, name=n) for n, a in zip("xt", self.data(), strict=True))
        p = {n: at.parameter(a, n) for n, a in self.weights().items()}
        if self.model == "mlp":
            logits = ops.dense(ops.relu(ops.dense(x, p["w1"], p["b1"])), p["w2"], p["b2"])
        else:
            for n in "12":
                x = ops.relu(ops.conv2d(x, p[f"w{n}"], p[f"b{n}"], padding=1))
                x = ops.max_pool2d(x, kernel=2)
            logits = ops.dense(ops.flatten(x), p["w3"], p["b3"])
        return ops.mean(ops.sum(ops.log_softmax(logits) * t, axis=1)) * -1.0

    def step(self, spec: Spec, trials: int = 0, seed: int = 0) -> Any:
        """autotensor's step, tuned first if `trials` is not 0."""
        import autotensor as at
        from autotensor.autodiff.optimizers import SGD, Adam

        chosen = SGD(self.rate) if self.optimizer == "sgd" else Adam(self.rate)
        options = {"db": spec.log or ":memory:", "target": f"llvm -threads={spec.threads}"}
        return at.training_step(
            self.loss(), optimizer=chosen, trials=trials, seed=seed, progress=False, **options
        )

    def ours(self, spec: Spec) -> Ready:
        step, (x, t) = self.step(spec), self.data()

        def run() -> float:
            return float(step(x, t))

        return run, lambda: _first(run)

    def tune(self, spec: Spec, trials: int, seed: int) -> dict[str, Any]:
        """Tunes the step's kernels, into the spec's log."""
        self.step(spec, trials, seed)
        return {"trials": trials}

    # -- torch -----------------------------------------------------------------------------------------------

    def torch(self) -> tuple[Any, Any]:
        """A function that computes the loss of a batch, and an optimiser of its weights."""
        import torch
        from torch.nn import functional as F

        p = {n: torch.tensor(a, requires_grad=True) for n, a in self.weights().items()}
        chosen = torch.optim.SGD if self.optimizer == "sgd" else torch.optim.Adam

        def loss(x: Any, t: Any) -> Any:
            if self.model == "mlp":
                logits = F.linear(torch.relu(F.linear(x, p["w1"], p["b1"])), p["w2"], p["b2"])
            else:
                for n in "12":
                    x = torch.relu(F.conv2d(x, p[f"w{n}"], p[f"b{n}"], padding=1))
                    x = F.max_pool2d(x, 2)
                logits = F.linear(x.flatten(1), p["w3"], p["b3"])
            return F.cross_entropy(logits, t)

        return loss, chosen(list(p.values()), lr=self.rate)


def _first(run: Any) -> Array:
    return np.array([run() for _ in range(FIRST)])


def eager(job: TrainingJob, spec: Spec) -> Ready:
    """A step of torch as in its tutorials. Gradients are dropped and not set to zero, which is torch's
    default."""
    import torch

    torch.set_num_threads(spec.threads)
    loss_of, optimizer = job.torch()
    x, t = map(torch.from_numpy, job.data())

    def run() -> float:
        optimizer.zero_grad()
        loss = loss_of(x, t)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return run, lambda: _first(run)


def compiled(job: TrainingJob, spec: Spec) -> Ready:
    """torch.compile of the loss with its backward pass, and of the optimiser's step."""
    import torch

    torch.set_num_threads(spec.threads)
    torch._dynamo.reset()
    function, optimizer = job.torch()
    loss_of = torch.compile(function, mode="max-autotune")
    update = torch.compile(optimizer.step)
    x, t = map(torch.from_numpy, job.data())

    def run() -> float:
        loss = loss_of(x, t)
        loss.backward()
        update()
        optimizer.zero_grad()
        return float(loss.detach())

    return run, lambda: _first(run)


KINDS["eager-training"] = eager
KINDS["compiled-training"] = compiled
