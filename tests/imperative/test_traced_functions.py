"""`compile`: one trace for each signature, the tape, parameters from outside, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import autotensor as at
from autotensor import imperative as torch
from autotensor.base.errors import GraphError, InputError
from autotensor.models import MODELS


def test_traced_once_for_each_signature() -> None:
    runs = []

    @at.compile
    def f(x, scale):
        runs.append(x.shape)
        return torch.exp(x) * scale

    array = np.ones(3, np.float32)
    for _ in range(3):
        np.testing.assert_allclose(f(array, 2.0), np.exp(array) * 2, rtol=1e-6)
    f(np.ones(4, np.float32), 2.0)
    f(array, 3.0)
    f(array.astype(np.float64), 2.0)
    assert (len(runs), f.traces) == (4, 4)
    assert f.__name__ == "f"


def test_a_model_is_no_function() -> None:
    with pytest.raises(InputError, match=r"takes a function on tensors, not a Graph.*at\.compile_model"):
        at.compile(MODELS.get("small_cnn").build())


def test_structures_of_results() -> None:
    @at.compile
    def f(x):
        return {"sum": x.sum(), "both": (x + 1, [x * 2, "text", 7])}

    found = f(np.float32([1, 2]))
    assert found["sum"] == 3
    assert found["both"][0].tolist() == [2, 3]
    assert found["both"][1][0].tolist() == [2, 4]
    assert found["both"][1][1:] == ["text", 7]


def test_gradients_through_a_compiled_function() -> None:
    w = torch.tensor([2.0, 3.0], requires_grad=True)

    @at.compile
    def f(x):
        return (x * w).sum(), x + 1.0

    x = torch.tensor([5.0, 7.0], requires_grad=True)
    for _ in range(2):
        x.grad = w.grad = None
        total, _ = f(x)
        (total * 10.0).backward()
        assert float(total) == 31
        assert x.grad.tolist() == [20, 30]
        assert w.grad.tolist() == [50, 70]
    with torch.no_grad():
        w += 1.0
    assert float(f(x)[0]) == 43, "what it reads from outside is read anew"
    (f(x)[0]).backward()
    assert f.traces == 1


def test_detached_parts_stay_detached() -> None:
    @at.compile
    def f(x):
        return (x * x).detach() * x

    x = torch.tensor(3.0, requires_grad=True)
    f(x).backward()
    assert float(x.grad) == 9


def test_a_function_inside_another() -> None:
    @at.compile
    def inner(x):
        return x * x

    @at.compile
    def outer(x):
        return inner(x) + 1

    assert outer(np.float32(3)[None]).tolist() == [10]
    assert (inner.traces, outer.traces) == (0, 1)


def test_methods() -> None:
    class Model(torch.nn.Module):
        def __init__(self, value: float) -> None:
            self.w = torch.nn.Parameter([value])

        @at.compile
        def forward(self, x):
            return x * self.w

    a, b = Model(2.0), Model(5.0)
    x = np.float32([1])
    assert (a(x).tolist(), b(x).tolist(), a(x).tolist()) == ([2], [5], [2])


def test_whole_training_steps() -> None:
    w = torch.tensor([1.0, 1.0], requires_grad=True)
    opt = torch.optim.Adam([w], 0.1)

    @at.compile
    def step(x):
        loss = torch.square((x * w).sum() - 1.0)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    x = np.float32([1, 2])
    losses = [float(step(x)) for _ in range(60)]
    assert step.traces == 1
    assert losses[-1] < 1e-2 < losses[0]
    assert w.grad is None


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x, "needs a value while it is traced"),
        (lambda x: float(x.sum()) and x, "needs a value"),
        (lambda x: 5, "neither returns nor changes a tensor"),
    ],
)
def test_what_cannot_be_traced(fn, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        at.compile(fn)(np.ones(2, np.float32))
    assert float(torch.tensor(1.0) + 1) == 2, "the trace has ended"


def test_arguments_without_a_signature() -> None:
    with pytest.raises(GraphError, match="an argument of type list"):
        at.compile(lambda x, n: x)(np.ones(2, np.float32), [1])


def test_printing_while_traced() -> None:
    shown = []

    @at.compile
    def f(x):
        shown.append(str(x * 2))
        return x

    f(np.ones(2, np.float32))
    assert shown == ["tensor(?, float32[2])"]
