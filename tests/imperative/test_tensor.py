"""Tensors: values, Python control flow on them, changes, gradients."""

from __future__ import annotations

import numpy as np
import pytest

from autotensor import imperative as torch
from autotensor.base.errors import GraphError
from autotensor.imperative import engine


def test_nothing_is_computed_before_somebody_looks() -> None:
    x = torch.tensor([1.0, 2.0])
    y = torch.exp(x) + 1
    assert y.node not in engine.known
    assert y.shape == (2,)
    assert str(y) == "tensor([3.7182817, 8.389056 ])"
    assert y.node in engine.known


def test_types() -> None:
    assert str(torch.tensor([1, 2]).dtype) == "int64"
    assert str(torch.tensor([1.0]).dtype) == "float32"
    assert str(torch.tensor(np.zeros(2)).dtype) == "float64"
    assert str((torch.tensor([1, 2]) * 0.5).dtype) == "float32"
    assert (torch.tensor([1, 2]) * 0.5).tolist() == [0.5, 1.0]
    assert str((torch.tensor([1.0]) > 0).dtype) == "bool"


def test_python_control_flow_on_values() -> None:
    x, turns = torch.tensor(1.0), 0
    while x < 100:
        x = x * 3 if turns % 2 else x + 4
        turns += 1
    assert (float(x), turns) == (249.0, 8) or turns > 0
    expected, n = 1.0, 0
    while expected < 100:
        expected = expected * 3 if n % 2 else expected + 4
        n += 1
    assert (float(x), turns) == (expected, n)


def test_indexing_and_iteration() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.tensor(array)
    for index in (
        0,
        -1,
        slice(1, 3),
        (1, 2),
        (slice(None), 1),
        (slice(0, 2), slice(1, -1)),
        (-1, slice(2, None)),
    ):
        assert np.array_equal(x[index].numpy(), array[index])
    assert [row.tolist() for row in x] == array.tolist()
    assert range(5)[torch.tensor(2)] == 2
    assert f"{x[1, 2]:.1f}" == "6.0"


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (1, 7.0),
        ((0, 2), -1.0),
        (slice(1, 3), [[1.0], [2.0]]),
        ((slice(None), 0), [1.0, 2.0, 3.0]),
        (slice(None), 0.0),
    ],
)
def test_writing_parts(index, value) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.tensor(array)
    before = x * 1.0
    x[index] = value if isinstance(value, float) else np.float32(value)
    expected = array.copy()
    expected[index] = value
    assert np.array_equal(x.numpy(), expected)
    assert np.array_equal(before.numpy(), array), "what was written before keeps its meaning"


def test_gradients_go_through_written_parts() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = torch.tensor(5.0, requires_grad=True)
    y = x * 2.0
    y[1] = v * v
    (y * y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [8, 0, 24])
    np.testing.assert_allclose(v.grad.numpy(), 500)


def test_gradients_add_up_until_they_are_cleared() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for n in (1, 2):
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0 * n, 4.0 * n]
    x.zero_grad()
    (x * 3.0).backward(torch.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [3, 30]


def test_branches_on_values_are_differentiated_as_taken() -> None:
    for start, slope in ((2.0, 4.0), (-2.0, -1.0)):
        x = torch.tensor(start, requires_grad=True)
        y = x * x if x > 0 else -x
        y.backward()
        assert float(x.grad) == slope


def test_no_grad_and_detach() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    with torch.no_grad():
        a = x * 2
    assert not a.requires_grad
    y = x * a + x * (x * x).detach()
    y.backward()
    assert float(x.grad) == 6 + 9


def test_parameters_change_in_place() -> None:
    w = torch.tensor(1.0, requires_grad=True)
    with pytest.raises(GraphError, match=r"is changed while operations are recorded.*no_grad"):
        w += 1
    old = w * 10
    with torch.no_grad():
        w += 1
        w *= 3
    assert (float(w), float(old)) == (6.0, 10.0)
    (w * w).backward()
    assert float(w.grad) == 12
    assert w.is_leaf


def test_a_training_loop_compiles_its_programs_once() -> None:
    def train(steps: int) -> int:
        w = torch.tensor(np.ones((3, 1), np.float32), requires_grad=True)
        opt = torch.optim.Adam([w], 0.1)
        for _ in range(steps):
            loss = torch.mse(torch.tensor(np.eye(3, dtype=np.float32)) @ w, torch.zeros(3, 1))
            opt.zero_grad()
            loss.backward()
            opt.step()
        float(loss)
        w.numpy()
        return len(engine.programs())

    first = train(3)
    assert train(12) == first


def test_loops_release_what_they_computed() -> None:
    w = torch.tensor(np.ones(4, np.float32), requires_grad=True)
    sizes = []
    for _ in range(30):
        loss = (w * w).sum()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        float(loss)
        sizes.append(len(engine.known))
    assert sizes[-1] == sizes[5]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: torch.tensor([1.0, 2.0], requires_grad=True).backward(), r"shape \(2,\) needs its gradient"),
        (lambda: torch.tensor(1.0).backward(), "no tensor that this one depends on requires a gradient"),
        (lambda: torch.tensor([1, 2], requires_grad=True), "int64 cannot require a gradient"),
        (lambda: torch.tensor([1.0, 2.0]).item(), r"shape \(2,\) is not one number"),
        (lambda: torch.tensor([1.0])[3], "index 3 is outside of axis 0, which has 1 elements"),
        (lambda: torch.tensor([1.0])[::2], "only steps of 1"),
        (lambda: torch.tensor([1.0])[0, 0], "takes at most 1 indices, got 2"),
        (lambda: torch.tensor([1.0]).assign([1.0, 2.0]), r"float32\[1\] cannot become float32\[2\]"),
        (lambda: torch.tensor([1.0]) + torch.zeros(2, 3) @ torch.zeros(2, 3), "disagree on k"),
        (lambda: torch.optim.SGD([torch.tensor(1.0)], 0.1), "is not a parameter"),
        (lambda: torch.optim.SGD([], 0.1), "there are no parameters"),
    ],
)
def test_refusals(act, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        act()


def test_values_cannot_be_changed_behind_our_back() -> None:
    x = torch.tensor([1.0])
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 2
    given = np.ones(2, np.float32)
    y = torch.tensor(given)
    given[0] = 5
    assert y.tolist() == [1, 1]


def test_modules_save_and_load(tmp_path) -> None:
    a, b = torch.nn.Linear(3, 2, seed=0), torch.nn.Linear(3, 2, seed=1)
    a.save(tmp_path / "m")
    x = np.ones((1, 3), np.float32)
    assert not np.array_equal(a(x).numpy(), b(x).numpy())
    b.load(tmp_path / "m")
    assert np.array_equal(a(x).numpy(), b(x).numpy())
    assert [n for n, _ in a.named_parameters()] == ["w", "b"]
    with pytest.raises(Exception, match="holds no parameter 'w' of shape"):
        torch.nn.Linear(4, 2).load(tmp_path / "m")


def test_another_device() -> None:
    with torch.device("interp"):
        assert (torch.tensor([1.0, 2.0]) * 2).tolist() == [2, 4]
