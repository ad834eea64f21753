"""Object files for the tests of the linker: one function for each way of referring to something."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import pytest

from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.linking.relocation import KINDS

# Every function takes an i64 and gives one; what it gives is in ANSWERS.
ZOO = """
@powers = private unnamed_addr constant [5 x i64] [i64 1, i64 10, i64 100, i64 1000, i64 10000]
@calls = internal global i64 40
@room = internal global [1000 x i64] zeroinitializer
@shared = global i64 7
@words = private constant [3 x ptr] [ptr @powers, ptr @calls, ptr @shared]
declare i64 @llabs(i64)
declare i64 @double_it(i64)
declare extern_weak i64 @nobody_has_this(i64)

define i64 @constant_array(i64 %n) {
  %p = getelementptr [5 x i64], ptr @powers, i64 0, i64 %n
  %v = load i64, ptr %p
  ret i64 %v
}
define i64 @floating(i64 %n) {
  %x = sitofp i64 %n to double
  %y = fmul double %x, 2.5
  %z = fptosi double %y to i64
  ret i64 %z
}
define i64 @counter(i64 %n) {
  %old = load i64, ptr @calls
  %new = add i64 %old, %n
  store i64 %new, ptr @calls
  ret i64 %new
}
define i64 @zeroed(i64 %n) {
  %p = getelementptr [1000 x i64], ptr @room, i64 0, i64 %n
  store i64 %n, ptr %p
  %q = getelementptr [1000 x i64], ptr @room, i64 0, i64 999
  %v = load i64, ptr %q
  %s = add i64 %v, %n
  ret i64 %s
}
define i64 @exported(i64 %n) {
  %v = load i64, ptr @shared
  %s = mul i64 %v, %n
  ret i64 %s
}
define i64 @pointers(i64 %n) {
  %p = getelementptr [3 x ptr], ptr @words, i64 0, i64 %n
  %q = load ptr, ptr %p
  %v = load i64, ptr %q
  ret i64 %v
}
define i64 @of_the_process(i64 %n) {
  %m = sub i64 0, %n
  %v = call i64 @llabs(i64 %m)
  ret i64 %v
}
define i64 @of_another_object(i64 %n) {
  %v = call i64 @double_it(i64 %n)
  ret i64 %v
}
define i64 @address_of_a_function(i64 %n) {
  %even = and i64 %n, 1
  %is = icmp eq i64 %even, 0
  %f = select i1 %is, ptr @of_another_object, ptr @llabs
  %v = call i64 %f(i64 %n)
  ret i64 %v
}
define i64 @optional(i64 %n) {
  %none = icmp eq ptr @nobody_has_this, null
  %v = select i1 %none, i64 1, i64 2
  ret i64 %v
}
define i64 @many_ways(i64 %n) {
  switch i64 %n, label %other [ i64 0, label %a i64 1, label %b i64 2, label %c
                                i64 3, label %d i64 4, label %e ]
a:
  ret i64 17
b:
  %x = call i64 @llabs(i64 -5)
  ret i64 %x
c:
  ret i64 19
d:
  %y = call i64 @double_it(i64 4)
  ret i64 %y
e:
  ret i64 23
other:
  ret i64 -1
}
"""
OTHER = "define i64 @double_it(i64 %n) {\n  %v = shl i64 %n, 1\n  ret i64 %v\n}\n"

# name, argument, answer; in this order, as @counter counts and @zeroed stores
ANSWERS = (
    ("constant_array", 3, 1000), ("floating", 5, 12), ("counter", 2, 42), ("counter", 3, 45),
    ("zeroed", 5, 5), ("zeroed", 999, 1998), ("exported", 6, 42), ("pointers", 0, 1),
    ("pointers", 1, 45), ("pointers", 2, 7),
    ("of_the_process", 9, 9), ("of_another_object", 21, 42), ("address_of_a_function", 4, 8),
    ("address_of_a_function", 5, 5), ("optional", 0, 1), ("many_ways", 0, 17), ("many_ways", 1, 5),
    ("many_ways", 2, 19), ("many_ways", 3, 8), ("many_ways", 4, 23), ("many_ways", 5, (1 << 64) - 1),
)  # fmt: skip
FUNCTIONS = tuple(dict.fromkeys(name for name, _, _ in ANSWERS))


@cache
def compiled_for(ir: str, machine: str, opt: int = 1) -> bytes:
    """Object code of IR text as the code generators ask for it: position-independent, the small model."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target: Any = llvm.Target.from_triple(f"{machine}-unknown-linux-gnu")
    made = target.create_target_machine(opt=opt, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(ir, context=llvm.create_context())
    module.triple, module.data_layout = made.triple, str(made.target_data)
    return bytes(made.emit_object(module))


def zoo(machine: str, opt: int = 1) -> tuple[bytes, bytes]:
    return compiled_for(ZOO, machine, opt), compiled_for(OTHER, machine, opt)


ours = pytest.mark.skipif(
    host_machine() not in KINDS or not sys.platform.startswith("linux"), reason="LLVM links here"
)


def call(address: int, argument: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_int64)(address)(argument))
