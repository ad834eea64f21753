"""Systems of equations, inverses and determinants of matrices that are data."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch_modules import Lambda, same  # noqa: E402

import autotensor as at  # noqa: E402
from autotensor.frontends.torch import Unsupported  # noqa: E402

linalg = torch.linalg


def matrices(*shape, seed=0):
    """Far from singular, but rows must be swapped."""
    torch.manual_seed(seed)
    return torch.randn(*shape) + 3 * torch.eye(shape[-1]).roll(1, -1)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangles(n, upper, left):
    """Elements of the other triangle are not read."""
    torch.manual_seed(n)
    a = torch.randn(2, n, n) / n + torch.eye(n)
    other = torch.ones(n, n).tril(-1) if upper else torch.ones(n, n).triu(1)
    a = a.masked_fill(other.bool(), float("nan"))
    b = torch.randn(2, n, 3) if left else torch.randn(2, 3, n)
    same(lambda a, b: linalg.solve_triangular(a, b, upper=upper, left=left), a, b)
    same(lambda a, b: linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=True), a, b)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve")
def test_triangles_in_older_words():
    a, b = torch.randn(4, 4) / 4 + torch.eye(4), torch.randn(4, 2)
    same(lambda b, a: torch.triangular_solve(b, a).solution, b, a)
    same(lambda b, a: torch.triangular_solve(b, a, upper=False, transpose=True).solution, b, a)


@pytest.mark.parametrize("n", [1, 2, 4, 16])
def test_inverses_and_determinants(n):
    a = matrices(3, n, n, seed=n)
    same(lambda a: (torch.inverse(a), linalg.det(a), *linalg.slogdet(a), a.logdet().nan_to_num()), a)


def test_rows_are_swapped_where_the_diagonal_is_zero():
    a = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 4.0], [8.0, 0.0, 0.0]])
    same(lambda a: (torch.inverse(a), linalg.det(a), *linalg.lu_factor(a)), a)


def test_what_torch_refuses_is_infinite_or_no_number():
    made = at.compile_model(at.from_torch(Lambda(torch.inverse), (torch.eye(3),)))
    assert not torch.isfinite(torch.from_numpy(made(torch.ones(3, 3).numpy()))).all()


@pytest.mark.parametrize("left", [False, True])
def test_systems(left):
    a, b = matrices(2, 4, 4), torch.randn(2, 4, 4)
    same(lambda a, b: linalg.solve(a, b, left=left), a, b)
    same(lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, left=left), a, b)
    same(lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, left=left, adjoint=True), a, b)


def test_a_vector_for_each_matrix():
    same(linalg.solve, matrices(2, 3, 3), torch.randn(2, 3))
    same(linalg.solve, matrices(3, 3), torch.randn(3))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 4, 4)])
def test_decompositions(shape):
    torch.manual_seed(1)
    same(lambda a: linalg.lu_factor(a), torch.randn(*shape))


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(upper):
    torch.manual_seed(2)
    x, b = torch.randn(2, 5, 5), torch.randn(2, 5, 3)

    def all_of_it(x, b):
        a = x @ x.mT + torch.eye(5)
        factor = linalg.cholesky(a, upper=upper)
        solved = torch.cholesky_solve(b, factor, upper=upper)
        return factor, solved, torch.cholesky_inverse(factor, upper=upper)

    same(all_of_it, x, b)


def test_large_ones_are_refused_in_a_sentence():
    with pytest.raises(Unsupported, match=r"linalg_inv_ex.default: a matrix of 17 rows .* up to 16"):
        at.from_torch(Lambda(torch.inverse), (torch.eye(17),))
