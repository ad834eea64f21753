"""LLVM IR with named fields and written loops: layouts, and results of assembled functions."""

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from autotensor.runtime.native import launcher, pool, work_sharing
from autotensor.runtime.native.assembler import Struct, assemble
from autotensor.runtime.native.launcher import compiled

PAIR = Struct("i32 count · i64 sum · [24] space · align 64 · ptr next")


def function(text: str, *arguments: type, **constants: int | str) -> Callable[..., int]:
    """The only function of a text, `f`, which gives an i64."""
    address = compiled(assemble(text, {"pair": PAIR}, constants), ("f",))["f"]
    return ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(address)


def test_fields_lie_where_c_puts_them() -> None:
    assert PAIR.offset == {"count": 0, "sum": 8, "space": 16, "next": 64}
    assert PAIR.bytes == 72
    assert Struct("ptr a · i32 b", start=16).offset == {"a": 16, "b": 24}
    layout = llvm.create_target_data("e-m:e-i64:64-n8:16:32:64")
    module = llvm.parse_assembly("%s = type { i32, ptr, i32, i32, i64 } @g = external global %s")
    (kind,) = module.struct_types
    struct = Struct("i32 a · ptr b · i32 c · i32 d · i64 e")
    assert [layout.get_element_offset(kind, k) for k in range(5)] == list(struct.offset.values())


def test_offsets_that_compiled_kernels_hold_stay_as_they_are() -> None:
    """Saved artifacts read their context, so other offsets would be another format."""
    told = ("barrier", "fork_join", "take", "lines", "counter", "generation", "unfinished")
    assert [launcher.CONTEXT.offset[name] for name in told] == [0, 8, 48, 56, 64, 128, 192]
    assert launcher.CONTEXT.bytes == 256


def test_what_threads_share_lies_on_lines_of_its_own() -> None:
    assert (pool.POOL.bytes, pool.WORKER.bytes, work_sharing.LINE.bytes) == (64, 384, 64)
    assert all(pool.WORKER.offset[name] % 64 == 0 for name in ("provider", "home", "mutex", "condition"))


def test_loops_count_carry_continue_and_break() -> None:
    f = function(
        """
        define i64 @f(i64 %n) {
          for i64 %k = 0 .. %n, i64 %sum = 0, i64 %odd = 0 {  ; a comment with FREE in it
            if eq i64 %k, STOP break
            %low = and i64 %k, 1
            if eq i64 %low, 1 {
              %odd1 = add i64 %odd, 1
              continue %sum, %odd1
            } else {
              if eq i64 %k, 4 continue %sum %odd
            }
            %sum1 = add i64 %sum, %k
          } next %sum1, %odd
          %scaled = mul i64 %sum, 100
          %all = add i64 %scaled, %odd
          ret i64 %all
        }
        """,
        ctypes.c_int64,
        STOP=9,
    )

    def reference(n: int) -> int:
        ks = range(min(n, 9))
        return 100 * sum(k for k in ks if k % 2 == 0 and k != 4) + sum(k % 2 for k in ks)

    assert [f(n) for n in range(14)] == [reference(n) for n in range(14)]


def test_loops_inside_loops_leave_the_inner_one() -> None:
    f = function(
        """
        define i64 @f(i64 %n) {
          loop i64 %rows = 0 {
            loop i64 %columns = 0 {
              %c1 = add i64 %columns, 1
              unless slt i64 %c1, %n break
            } next %c1
            %r1 = add i64 %rows, %columns
            if sgt i64 %r1, 20 ret i64 %r1
            if eq i64 %r1, 0 goto none
          } next %r1
        none:
          ret i64 -1
        }
        """,
        ctypes.c_int64,
    )
    assert [f(1), f(4), f(12)] == [-1, 21, 22]


def test_fields_are_loaded_stored_added_to_and_exchanged() -> None:
    f = function(
        """
        define i64 @f(ptr %two, i64 %x) {
          %p = pair.at(%two, i64 1)
          store %x, pair.sum(%p)
          store atomic 5, pair.count(%p) release
          store %two, pair.next(%p)
          %before = atomicrmw add pair.sum(%p), 2 acq_rel
          %won = exchange pair.count(%p), 5, 6
          %lost = exchange pair.count(%p), 5, 7
          %here = load pair.next(%p)
          %first = load i64.at(%here, i64 1)
          %after = load atomic pair.sum(%p) acquire
          %ours = icmp ugt i1 %won, %lost
          %sum = add i64 %after, %first
          %all = select i1 %ours, i64 %sum, i64 %before
          ret i64 %all
        }
        """,
        ctypes.c_void_p,
        ctypes.c_int64,
    )
    two = (ctypes.c_int64 * 18)()
    two[1] = 1000
    assert f(ctypes.addressof(two), 40) == 1042
    second = ctypes.addressof(two) + PAIR.bytes
    assert ctypes.c_int32.from_address(second).value == 6
    assert ctypes.c_int64.from_address(second + 64).value == ctypes.addressof(two)


@pytest.mark.parametrize(
    "line", ["%x = load pair.total(%p)", "%x = load couple.sum(%p)", "store LIMIT, pair.sum(%p)"]
)
def test_what_there_is_not_is_an_error(line: str) -> None:
    with pytest.raises(KeyError, match=r"total|couple|LIMIT"):
        assemble(f"define void @f(ptr %p) {{\n{line}\nret void\n}}", {"pair": PAIR}, {})
