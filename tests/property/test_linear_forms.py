"""Properties that are read from an index hold for every value of its variables: divisors, lanes, signs and
ends."""

from hypothesis import given, settings
from int_expressions import CASES, Case, Pick, drawn, int_expr, small_ranges, value_of, values, vector

from autotensor.base.dtype import int64
from autotensor.ir.affine import is_multiple, to_expr
from autotensor.ir.bounds import bounds
from autotensor.ir.expr import Binary, Broadcast, Op, const
from autotensor.ir.lane_offsets import lanes_of

QUICK = settings(max_examples=150, deadline=None)


def multiples(pick: Pick) -> Case:
    """Multiples of two numbers, under an operation that may keep their common divisors."""
    a, b = (Binary(Op.MUL, int_expr(pick, depth=1), const(pick((4, 6, 8, 12)))) for _ in range(2))
    op = pick((Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX, Op.XOR, Op.MOD, Op.FLOORDIV))
    return Binary(pick((Op.ADD, Op.MUL)), Binary(op, a, b), const(pick((1, 2, 3, 4)))), small_ranges(pick), ()


def index_of_lanes(pick: Pick) -> Case:
    e = vector(pick)
    c = Broadcast(const(pick((1, 2, 4))), 4)
    operation = pick((Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD))
    return e if e.dtype.is_bool else Binary(operation, e, c), small_ranges(pick), ()


@QUICK
@given(drawn(multiples) | drawn(CASES[0]))
def test_what_is_said_to_divide_divides_all_values(case):
    e, ranges, _ = case
    proved = [n for n in (2, 4, 8, 16, *((3, 6, 12) if e.dtype is int64 else ())) if is_multiple(e, n)]
    for env, value in values(e, ranges, ()):
        assert not any(value % n for n in proved), f"{e} is {value} at {env}, no multiple of {proved}"


@QUICK
@given(drawn(index_of_lanes))
def test_lanes_are_the_base_and_their_offsets(case):
    e, ranges, _ = case
    lanes = lanes_of(e)
    if lanes is not None:
        for env, value in values(e, ranges, ()):
            base = value_of(to_expr(lanes.base), env)
            assert value == [base + offset for offset in lanes.offsets]


@QUICK
@given(drawn(CASES[0]) | drawn(CASES[2]))
def test_signs_and_ends(case):
    e, ranges, _ = case
    known = bounds(ranges)
    for least in (0, 1):
        for end in (8, 32):
            lower, inside = known.at_least(e, least), known.below(e, end)
            for _, value in values(e, ranges, ()) if lower or inside else ():
                lanes = value if isinstance(value, list) else [value]
                assert not lower or min(lanes) >= least
                assert not inside or 0 <= min(lanes) <= max(lanes) < end
