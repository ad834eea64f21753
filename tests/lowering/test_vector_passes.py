"""vectorize, unmask, unroll, promote, flatten: one picture each, then the awkward cases."""

from __future__ import annotations

import pytest
from ir_tools import PARALLEL, UNROLLED, VECTORIZED, A, B, I, J, K, T, buffer, loop, store, text

from autotensor.base.errors import LoweringError
from autotensor.ir.expr import Call, Load, Ramp, Select, Var, broadcast, call, const
from autotensor.ir.func import Scope
from autotensor.ir.simplify import simplify
from autotensor.ir.stmt import Alloc, If, Let, Stmt, Store, seq
from autotensor.lowering.passes.flatten import flatten
from autotensor.lowering.passes.promote_registers import promote
from autotensor.lowering.passes.unmask_loads import unmask
from autotensor.lowering.passes.unroll import unroll
from autotensor.lowering.passes.vectorize import vectorize


def vector(body: Stmt, lanes: int = 4) -> str:
    return text(simplify(vectorize(loop(J, lanes, body, VECTORIZED))))


class TestVectorize:
    def test_a_copy(self) -> None:
        assert vector(store(B, J, Load(A, (J + 3,)))) == "B[0:4] = A[3:7]"

    def test_a_scalar_is_repeated(self) -> None:
        assert vector(store(B, J, Load(A, (I,)) * 2.0)) == "B[0:4] = x4(A[i] * 2.0)"

    def test_a_guard_becomes_a_mask(self) -> None:
        assert vector(If(J < I, store(B, J, Load(A, (J,))))) == (
            "B[0:4] = (A[0:4] if ramp(0, 1, 4) < x4(i)) if ramp(0, 1, 4) < x4(i)"
        )

    def test_an_else_becomes_the_opposite_mask(self) -> None:
        found = vector(If(J < 2, store(B, J, 1.0), store(B, J, 2.0)))
        assert found == (
            "B[0:4] = x4(1.0) if ramp(0, 1, 4) < x4(2)\nB[0:4] = x4(2.0) if ramp(0, 1, 4) >= x4(2)"
        )

    def test_a_guard_that_does_not_move_stays(self) -> None:
        assert vector(If(I < 3, store(B, J, 1.0))) == "if i < 3:\n  B[0:4] = x4(1.0)"

    def test_a_stride_and_a_gather(self) -> None:
        assert vector(store(B, J, Load(A, (J * 3,)))) == "B[0:4] = A[ramp(0, 3, 4)]"
        gather = Load(A, (Load(T, (J,)).astype("int64"),))
        assert vector(store(B, J, gather)) == "B[0:4] = A[int64(T[0:4])]"

    def test_variables_become_vectors(self) -> None:
        v = Var("v")
        assert vector(Let(v, J // 2, store(B, J, Load(A, (v,))))) == (
            "v_4 = ramp(0, 1, 4) // x4(2)\nB[0:4] = A[v_4]"
        )

    def test_loops_inside_stay_loops(self) -> None:
        inner = loop(K, 3, store(B, J, Load(B, (J,)) + Load(A, (K * 4 + J,))))
        assert vector(inner) == "for k in range(3):\n  B[0:4] += A[k*4:k*4+4]"

    def test_functions_and_selects(self) -> None:
        e = Select(J < 2, Call("exp", (Load(A, (J,)),), A.dtype), const(0.0, A.dtype))
        assert vector(store(B, J, e)) == "B[0:4] = (exp(A[0:4]) if ramp(0, 1, 4) < x4(2) else x4(0))"

    def test_an_axis_of_extent_one_split_by_more(self) -> None:
        """All lanes have the same element: the loop is unrolled instead, and the guard leaves one
        iteration."""
        body = vectorize(loop(J, 4, If(J < 1, store(B, 0, Load(A, (J,)))), VECTORIZED))
        assert text(unroll(body)) == "B[0] = A[0]"

    def test_refusals(self) -> None:
        inside = loop(J, 4, loop(K, 2, store(B, J * 2 + K, 0.0), VECTORIZED), VECTORIZED)
        with pytest.raises(LoweringError, match="a vectorized loop stands inside another"):
            vectorize(inside)
        ragged = loop(J, 4, loop(K, 2, store(B, J, 0.0)), VECTORIZED)
        assert text(vectorize(ragged)).startswith("for k")


class TestUnmask:
    MASK = Ramp(I * 4, 1, 4) < 6

    def masked(self, b: object) -> Store:
        load = Load(b, (Ramp(I * 4, 1, 4),), self.MASK)
        return Store(B, (Ramp(I * 4, 1, 4),), load, self.MASK)

    def test_lanes_that_exist_are_read(self) -> None:
        assert " = A[i*4:i*4+4] if " in text(unmask(loop(I, 2, self.masked(A))))

    def test_lanes_that_do_not_exist_are_not(self) -> None:
        short = buffer("S", 6)
        body = loop(I, 2, self.masked(short))
        assert unmask(body) is body

    def test_a_shared_buffer_that_is_written_keeps_its_masks(self) -> None:
        """Another thread may be writing the lanes that are switched off."""
        body = loop(I, 2, self.masked(B), PARALLEL)
        assert unmask(body) is body

    def test_a_private_buffer_that_is_written_does_not(self) -> None:
        near = buffer("N", 8, scope=Scope.LOCAL)
        fill = Store(near, (Ramp(const(0), 1, 8),), broadcast(const(1.0, near.dtype), 8))
        found = text(unmask(Alloc(near, seq(fill, loop(I, 2, self.masked(near))))))
        assert " = N[i*4:i*4+4] if " in found


class TestUnroll:
    def test_iterations_are_written_out_and_simplified(self) -> None:
        body = loop(I, 3, loop(J, 2, store(B, I * 2 + J, Load(A, (J,))), UNROLLED))
        assert text(unroll(body)) == "for i in range(3):\n  B[i*2] = A[0]\n  B[i*2+1] = A[1]"

    def test_nested_loops_with_guards(self) -> None:
        inner = If(I * 2 + J < 5, store(B, I * 2 + J, 0.0))
        found = text(unroll(loop(I, 3, loop(J, 2, inner, UNROLLED), UNROLLED)))
        assert found == "\n".join(f"B[{n}] = 0" for n in range(5))

    def test_what_does_not_depend_on_the_variable_is_shared(self) -> None:
        """The copies hold the same object, simplified once."""
        row = Load(A, (I * 8 // 8 + K,))
        unrolled = unroll(loop(J, 2, store(B, J, row), UNROLLED))
        first, second = unrolled.stmts  # type: ignore[attr-defined]
        assert first.value is second.value
        assert text(first.value) == "A[i+k]"

    def test_copies_by_loops_inside_one_another_are_counted(self) -> None:
        """65536 copies took 42 s and 1.8 GB; 4096 times 4096 never ended."""
        body = store(B, I + J, 0.0)
        few = unroll(loop(I, 32, loop(J, 32, body, UNROLLED), UNROLLED))
        assert text(few).count("\n") == 1023
        with pytest.raises(
            LoweringError, match=r"loops 'i', 'j' inside one another write 65536 copies; at most 16384 are"
        ):
            unroll(loop(I, 256, loop(K, 2, loop(J, 256, body, UNROLLED)), UNROLLED))

    def test_begin(self) -> None:
        assert text(unroll(loop(I, 2, store(B, I, 0.0), UNROLLED, begin=5))) == "B[5] = 0\nB[6] = 0"


class TestPromote:
    NEAR = buffer("N", 4, 8, scope=Scope.LOCAL)

    def body(self, index: object, mask: object = None) -> Stmt:
        value = Load(self.NEAR, (index,), mask)
        near = Store(self.NEAR, (index,), value, mask)  # type: ignore[arg-type]
        return Alloc(self.NEAR, loop(I, 4, loop(K, 9, near), UNROLLED))

    def test_indices_over_unrolled_loops(self) -> None:
        assert "register([4, 8]" in text(promote(self.body(Ramp(I * 8, 1, 8))))

    def test_indices_over_other_loops(self) -> None:
        assert "local([4, 8]" in text(promote(self.body(Ramp(K, 1, 8))))

    def test_strided_or_masked_access(self) -> None:
        assert "local(" in text(promote(self.body(Ramp(I, 4, 8))))
        assert "local(" in text(promote(self.body(Ramp(I * 8, 1, 8), Ramp(const(0), 1, 8) < 5)))

    def test_indices_that_stay_calls_or_floats(self) -> None:
        """They are computed when the program runs, even where their operands are constants."""
        half = I.astype("float32") * 0.5
        for index in (call("abs", I - 4), call("floor", half).astype("int64"), half.astype("int64")):
            assert "local(" in text(promote(self.body(index)))

    def test_large_buffers(self) -> None:
        large = buffer("L", 4096, scope=Scope.LOCAL)
        body = Alloc(large, store(large, 0, 1.0))
        assert promote(body) is body


def test_flatten_counts_elements() -> None:
    m, s = buffer("M", 3, 4, 5), buffer("S")
    body = seq(store(m, (I, J, K), Load(s, ())), store(s, (), Load(m, (const(1), J, K))))
    assert text(simplify(flatten(body))) == "M[i*20+j*5+k] = S[0]\nS[0] = M[j*5+k+20]"
