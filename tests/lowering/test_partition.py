"""Loops are cut where their guards stop holding, and shortened if a guard never holds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from ir_tools import PARALLEL, UNROLLED, VECTORIZED, A, B, I, J, K, buffer, loop, store, text

from autotensor.ir.bounds import NO_RANGES, bounds
from autotensor.ir.expr import Expr, Load, Select, Symbol, Var, const, maximum, minimum
from autotensor.ir.func import Buffer
from autotensor.ir.stmt import If, Let, Stmt, seq
from autotensor.lowering.passes.loop_guards import share
from autotensor.lowering.passes.open_rows import IN_VAIN, open_rows, rows_left
from autotensor.lowering.passes.partition import COPIES, ROWS, SHORT, partition

S = store(B, I * 8 + J, Load(A, (I * 8 + J,)))


def test_a_tail() -> None:
    assert (
        text(partition(loop(I, 7, loop(J, 8, If(I * 8 + J < 50, S)))))
        == """\
for i in range(6):
  for j in range(8):
    B[i*8+j] = A[i*8+j]
for j in range(2):
  B[j+48] = A[j+48]"""
    )


def test_no_guard_no_change() -> None:
    body = loop(I, 8, loop(J, 8, S))
    assert partition(body) is body


def test_both_ends_stick_out() -> None:
    inside = If(I * 8 + J >= 3, If(I * 8 + J < 50, S))
    assert (
        text(partition(loop(I, 7, loop(J, 8, inside))))
        == """\
for j in range(3, 8):
  B[j] = A[j]
for i in range(1, 6):
  for j in range(8):
    B[i*8+j] = A[i*8+j]
for j in range(2):
  B[j+48] = A[j+48]"""
    )


def test_masks_of_loads_are_guards_too() -> None:
    """A tile is stored in whole vectors, but its operand ends earlier."""
    inside = store(B, I * 8 + J, Load(A, (I * 8 + J,), I * 8 + J < 50))
    assert (
        text(partition(loop(I, 7, loop(J, 8, inside, VECTORIZED))))
        == """\
for i in range(6):
  for j in vectorized(8):
    B[i*8+j] = A[i*8+j]
for j in vectorized(8):
  B[j+48] = (A[j+48] if j < 2)"""
    )


def test_masks_of_what_has_a_name_are_guards_too() -> None:
    """Reducers of several results name what they join."""
    new = Var("new", A.dtype)
    inside = Let(new, Load(A, (I * 8 + J,), I * 8 + J < 50), store(B, I * 8 + J, new))
    assert (
        text(partition(loop(I, 7, loop(J, 8, inside, VECTORIZED))))
        == """\
for i in range(6):
  for j in vectorized(8):
    new = A[i*8+j]
    B[i*8+j] = new
for j in vectorized(8):
  new = (A[j+48] if j < 2)
  B[j+48] = new"""
    )


def test_turns_in_which_nothing_happens_go() -> None:
    """A factor larger than the axis."""
    assert (
        text(partition(loop(I, 4, loop(J, 16, If(I * 16 + J < 10, S)))))
        == """\
for j in range(10):
  B[j] = A[j]"""
    )


def test_a_loop_in_which_nothing_ever_happens_goes() -> None:
    assert text(partition(seq(loop(J, 4, If(J > 10, S)), loop(K, 2, store(A, K, 1.0))))) == (
        "for k in range(2):\n  A[k] = 1.0"
    )


def test_a_parallel_loop_is_not_cut() -> None:
    assert (
        text(partition(loop(I, 7, loop(J, 8, If(I * 8 + J < 50, S)), PARALLEL)))
        == """\
for i in parallel(7):
  if i < 6:
    for j in range(8):
      B[i*8+j] = A[i*8+j]
  else:
    for j in range(2):
      B[j+48] = A[j+48]"""
    )


def test_a_parallel_loop_is_shortened() -> None:
    assert text(partition(loop(I, 7, If(I < 5, store(B, I, 0.0)), PARALLEL))) == (
        "for i in parallel(5):\n  B[i] = 0"
    )


def test_unrolled_loops_are_shortened_vectors_keep_their_mask() -> None:
    assert "unrolled(3)" in text(partition(loop(J, 8, If(J < 3, store(B, J, 0.0)), UNROLLED)))
    assert text(partition(loop(J, 8, If(J < 3, store(B, J, 0.0)), VECTORIZED))) == (
        "for j in vectorized(8):\n  if j < 3:\n    B[j] = 0"
    )


def test_a_part_of_a_fused_loop_gets_a_test() -> None:
    y = Var("y")
    body = Let(y, K // 4, loop(J, 8, If(y * 8 + J < 20, store(B, y * 8 + J, 0.0))))
    assert (
        text(partition(loop(K, 12, body)))
        == """\
for k in range(12):
  y = k // 4
  if y < 2:
    for j in range(8):
      B[y*8+j] = 0
  else:
    for j in range(4):
      B[j+16] = 0"""
    )


def test_two_tails_make_four_parts() -> None:
    yo, yi, xo, xi = (Var(n) for n in ("yo", "yi", "xo", "xi"))
    body: Stmt = If(yo * 4 + yi < 10, If(xo * 4 + xi < 6, store(B, (yo * 4 + yi) * 6 + xo * 4 + xi, 0.0)))
    for var, extent in ((xi, 4), (yi, 4), (xo, 2), (yo, 3)):
        body = loop(var, extent, body)
    found = text(partition(body))
    assert "if" not in found
    assert found.count("B[") == 4


def test_turns_of_a_short_loop_are_written_one_by_one_where_each_leaves_out_others() -> None:
    """A kernel's columns k at the left edge of an image, in a tile of four columns j."""
    assert (
        text(partition(loop(K, 2, loop(J, 4, If(J + K >= 3, store(B, J + K, 1.0)), UNROLLED))))
        == """\
B[3] = 1.0
for j in unrolled(2, 4):
  B[j+1] = 1.0"""
    )


def test_a_guard_in_front_of_much_work_cuts_no_loop() -> None:
    body = loop(I, 7, If(I * 8 < 50 - 8 * J, loop(K, 100, store(B, K, 1.0))))
    assert partition(loop(J, 2, body)) is not None
    assert text(partition(loop(J, 2, body))).count("for i") == 1


def test_a_long_loop_ends_where_a_loop_outside_says() -> None:
    assert (
        text(partition(loop(I, 90, loop(J, 100, If(J <= I, store(B, J, 1.0))), PARALLEL)))
        == """\
for i in parallel(90):
  for j in range(i + 1):
    B[j] = 1.0"""
    )


def test_a_long_loop_is_cut_where_not_all_of_a_tile_is_done() -> None:
    tile = loop(K, 4, If(J <= I * 4 + K, store(B, K, 1.0)), UNROLLED)
    assert (
        text(partition(loop(I, 25, loop(J, 100, tile))))
        == """\
for i in range(25):
  for j in range(i * 4 + 1):
    for k in unrolled(4):
      B[k] = 1.0
  for j in range(i * 4 + 1, i * 4 + 1 + 3):
    for k in unrolled(4):
      if j <= i * 4 + k:
        B[k] = 1.0"""
    )


def test_an_open_end_may_lie_outside_of_the_loop() -> None:
    cond = J + 50 <= I + K * 50  # neither outer loop alone decides the place
    found = text(partition(loop(I, 90, loop(K, 9, loop(J, 100, If(cond, store(B, J, 1.0)))), PARALLEL)))
    assert "for j in range(max(min(i + k * 50 - 49, 100), 0)):\n      B[j] = 1.0\n" in found


def test_no_loop_ends_where_a_lane_says() -> None:
    found = text(partition(loop(I, 90, loop(J, 100, If(J <= I, store(B, J * 90 + I, 1.0))), VECTORIZED)))
    assert "if j <= i:" in found


def test_short_loops_keep_ends_that_loops_outside_decide() -> None:
    found = text(partition(loop(I, 16, loop(J, 16, If(J <= I, store(B, J, 1.0))))))
    assert "range(i" not in found


def test_the_number_of_copies_is_bounded() -> None:
    """Sixteen guarded loops, one after another."""
    loops = [
        loop(Var(f"i{n}"), 7, loop(J, 8, If(Var(f"i{n}") * 8 + J < 50, store(B, J, 0.0)))) for n in range(16)
    ]
    found = text(partition(seq(*loops)))
    assert found.count("if ") == 16 - COPIES


def test_conditions_on_data_stay() -> None:
    guarded = If(Load(A, (J,)) > 0.0, store(B, J, 0.0))
    assert "if A[j] > 0" in text(partition(loop(J, 8, guarded)))


def test_a_select_that_protects_a_load_is_a_guard_too() -> None:
    """A stencil reads its left neighbour, except in the first column."""
    left = Select(I * 8 + J >= 1, Load(A, (I * 8 + J - 1,)), Load(A, (I * 8 + J,)))
    assert (
        text(partition(loop(I, 6, loop(J, 8, store(B, I * 8 + J, left), VECTORIZED))))
        == """\
for j in vectorized(8):
  B[j] = (A[j-1] if j >= 1 else A[j])
for i in range(1, 6):
  for j in vectorized(8):
    B[i*8+j] = A[i*8+j-1]"""
    )


def test_so_is_one_that_protects_what_it_takes_otherwise() -> None:
    left = Select(I * 8 + J < 1, Load(A, (I * 8 + J,)), Load(A, (I * 8 + J - 1,)))
    found = text(partition(loop(I, 6, loop(J, 8, store(B, I * 8 + J, left), VECTORIZED))))
    assert (
        found.split("for i in range(1, 6):")[1].strip()
        == "for j in vectorized(8):\n    B[i*8+j] = A[i*8+j-1]"
    )


def test_a_select_whose_loads_are_in_bounds_cuts_nothing() -> None:
    body = loop(I, 6, store(B, I, Select(I >= 1, Load(A, (I,)), Load(A, (I + 1,)))))
    assert partition(body) == body


def test_nor_does_one_in_a_loop_with_much_else() -> None:
    much = [store(B, I + k, Load(A, (I + k,))) for k in range(SHORT)]
    body = loop(I, 6, seq(store(B, I, Select(I >= 1, Load(A, (I - 1,)), Load(A, (I,)))), *much))
    assert text(partition(body)).count("for i") == 1


def test_the_longest_part_is_cut_first() -> None:
    """Few copies are made, and the first iteration takes little of the time."""
    edge = store(B, I, Select(I >= 1, Load(A, (I - 1,)), Load(A, (I,))))
    rest = loop(J, 7, loop(K, 8, If(J * 8 + K < 50, store(B, J * 8 + K, Load(A, (J * 8 + K,))))))
    first, main = text(partition(loop(I, 100, seq(edge, rest)), copies=2)).split("for i in range(1, 100):")
    assert "if j * 8 + k < 50" in first
    assert "if" not in main


def test_few_copies_go_to_where_most_turns_are_guarded() -> None:
    """The first branch is taken by one iteration of a hundred."""

    def tail(b: Buffer) -> Stmt:
        return loop(J, 9, loop(K, 8, If(J * 8 + K < 67, store(b, J * 8 + K, 1.0))))

    body = loop(I, 100, seq(If(I >= 99, tail(A)), tail(B)))
    rarely, mostly = text(partition(body, copies=1)).split("  for j in range(8):")
    assert "if j * 8 + k < 67" in rarely
    assert "if" not in mostly


def test_no_copy_goes_to_a_loop_whose_guards_one_inside_settles_where_copies_are_few() -> None:
    """The first row of an image in two strips: copies of a strip double the code inside."""
    row = Var("row")
    left = Select(J * 8 + K >= 1, Load(A, (J * 8 + K - 1,)), Load(A, (J * 8 + K,)))
    up = Select(I * 20 + row >= 1, Load(B, (I * 20 + row - 1,)), Load(B, (I * 20 + row,)))
    body = loop(J, 7, loop(K, 8, store(buffer("C", 64), J * 8 + K, left + up), VECTORIZED))
    found = text(partition(loop(I, 2, loop(row, 20, body), PARALLEL), copies=2))
    assert found.startswith("for i in parallel(2):\n  for j")
    assert "if" not in found.split("for row in range(1, 20):")[1].split("for j in range(1, 7):")[1]


def test_a_vector_that_comes_round_is_apart() -> None:
    """Everywhere else its lanes lie side by side."""
    j = I * 8 + J
    inside = store(B, j, Load(A, ((j + 1) % 64,)) + Load(A, ((j + 63) % 64,)))
    assert (
        text(partition(loop(I, 8, loop(J, 8, inside, VECTORIZED))))
        == """\
for j in vectorized(8):
  B[j] = A[j+1] + A[(j+63)%64]
for i in range(1, 7):
  for j in vectorized(8):
    B[i*8+j] = A[i*8+j+1] + A[i*8+j-1]
for j in vectorized(8):
  B[j+56] = A[(j+57)%64] + A[j+55]"""
    )


def test_so_is_one_whose_index_a_choice_turns_round() -> None:
    j = I * 8 + J
    inside = store(B, j, Load(A, (Select(j.equal(0), const(63), j - 1),)))
    assert (
        text(partition(loop(I, 8, loop(J, 8, inside, VECTORIZED))))
        == """\
for j in vectorized(8):
  B[j] = A[(63 if j == 0 else j-1)]
for i in range(1, 8):
  for j in vectorized(8):
    B[i*8+j] = A[i*8+j-1]"""
    )


def test_so_is_one_whose_index_has_a_limit() -> None:
    j = I * 8 + J
    inside = store(B, j, Load(A, (maximum(j - 1, 0),)) + Load(A, (minimum(j + 2, 63),)))
    assert (
        text(partition(loop(I, 8, loop(J, 8, inside, VECTORIZED))))
        == """\
for j in vectorized(8):
  B[j] = A[max(j-1, 0)] + A[j+2]
for i in range(1, 7):
  for j in vectorized(8):
    B[i*8+j] = A[i*8+j-1] + A[i*8+j+2]
for j in vectorized(8):
  B[j+56] = A[j+55] + A[min(j+58, 63)]"""
    )


def test_scalar_indices_that_come_round_cut_nothing() -> None:
    body = loop(I, 8, loop(J, 8, store(B, I * 8 + J, Load(A, ((I * 8 + J + 1) % 64,)))))
    assert text(partition(body)) == text(body)


def test_remainders_of_several_rounds_cut_nothing() -> None:
    j = I * 8 + J
    body = loop(I, 8, loop(J, 8, store(B, j, Load(A, (j % 24,))), VECTORIZED))
    assert text(partition(body)).count("for i in") == 1


def test_shares_of_conditions() -> None:
    known = bounds(NO_RANGES).in_loop(I, const(0), const(100))
    assert share(I < 25, known) == 0.25
    assert share(I * 2 >= 200, known) == 0.0
    assert share(Load(A, (I,)) > 0.0, known) == 0.5


# -- rows that a run-time extent leaves over --------------------------------------------------------------

N = Symbol("n", least=1, most=512)
TERM, TAP = Var("term"), Var("tap")


def tile(row: Expr, rows: int) -> Stmt:
    """`rows` rows with sums of 16 terms, each stored below n."""
    sums = loop(TERM, 16, store(A, K, Load(A, (K,)) + 1.0))
    return seq(sums, loop(J, rows, If(row < N, store(B, row, Load(A, (J,)))), UNROLLED))


def test_of_a_loop_over_tiles_and_of_the_innermost_around_a_tile_of_all_rows() -> None:
    known = bounds(NO_RANGES)
    over = open_rows(I, tile(I * 6 + J, 6), known)
    alone = open_rows(I, tile(J, 6), known)
    assert over is not None
    assert alone is not None
    assert (over[1:], alone[1:]) == ((J, 6), (J, 6))
    assert open_rows(K, loop(I, 4, tile(J, 6), PARALLEL), known) is None
    assert open_rows(K, loop(I, 4, tile(I * 6 + J, 6)), known) is None


def test_a_window_that_moves_over_a_tile_is_no_loop_over_tiles() -> None:
    assert open_rows(TAP, tile(I * 6 + J + TAP, 6), bounds(NO_RANGES)) is None


def test_rows_without_sums_are_not_worth_it() -> None:
    body = loop(J, 6, If(I * 6 + J < N, store(B, I * 6 + J, 1.0)), UNROLLED)
    assert open_rows(I, body, bounds(NO_RANGES)) is None


@pytest.mark.parametrize("rows", range(2, 33))
def test_few_rows_are_in_vain(rows: int) -> None:
    sizes = [rows, *rows_left(rows, rows)]
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] == 1
    for most, fewer in pairwise(sizes):
        assert (most - fewer - 1) * IN_VAIN <= most  # of `fewer + 1` rows that are computed as `most`


@pytest.mark.parametrize("copies", range(12))
def test_copies_are_bounded(copies: int) -> None:
    assert len(rows_left(14, copies)) <= copies
    assert (rows_left(14, copies) or [1])[-1] >= 1


def test_all_kernels_have_room_for_three_such_tiles() -> None:
    """Copies for numbers of rows do not count as copies for cut loops."""
    cut = text(partition(seq(*(loop(v := Var(f"i{k}"), 37, tile(v * 14 + J, 14)) for k in range(3)))))
    assert cut.count("in range(16)") == 3 * (1 + len(rows_left(14, ROWS)))
