"""The short way from Python to a kernel: one native step that checks the arrays, places them and launches.

    call(table, slots, arrays) ──▶ every array fits: slots filled, kernel run, 1
                                   anything else:    nothing run, 0; `arguments.fill` then words the error

Checking in Python takes 1 us per array, and 3 us per array of indices, because each index must be inside its
range. A product of 32 x 32 matrices takes half a microsecond. The native check reads the fields of array and
tuple objects at the offsets that CPython and NumPy use (NumPy's C interface: the offsets are compiled into
every extension). First, `layout_is_known` looks at some objects; if their fields differ, the native check is
not used. The native check accepts less than `arguments.fill`: subclasses of ndarray and equal copies of a
dtype take the long way.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from autotensor.runtime.arguments import Slot
from autotensor.runtime.native import launcher
from autotensor.runtime.native.assembler import Struct, assemble

_HEAD = object.__basicsize__  # size of every object's head; the last field of the head is the type
_ARRAY = Struct(
    "ptr type · i64 data · i32 rank · ptr shape · ptr strides · ptr base · ptr dtype · i32 flags", _HEAD - 8
)  # PyArrayObject_fields
_TUPLE = Struct("i64 size", _HEAD)  # PyTupleObject
_ITEMS = tuple.__basicsize__

# `type` is the type of arrays
_TABLE = Struct("ptr provider · ptr kernel · i32 team · align 8 · i64 count · ptr type")
# The requirements for one array. written: whether the array is an output. inside: the function that checks
# that indices are in least … most, or null.
_SLOT = Struct("""
    i64 index
    ptr dtype
    i32 flags
    align 8
    i64 rank
    ptr shape
    i64 bytes
    i64 written
    ptr inside
    i64 least
    i64 most
""")

_VECTOR = 64  # a check of indices looks at this many bytes together

_CALL = """
define i32 @call(ptr %table, ptr %slots, ptr %arrays) {
  %provider = load table.provider(%table)
  %kernel = load table.kernel(%table)
  %team = load table.team(%table)
  %count = load table.count(%table)
  %type = load table.type(%table)
  %first = getelementptr i8, ptr %table, i64 FIRST
  %size = load tuple.size(%arrays)
  %items = getelementptr i8, ptr %arrays, i64 ITEMS
  if ne i64 %size, %count goto no
  for i64 %n = 0 .. %count {
    %a = load ptr.at(%items, i64 %n)
    %w = slot.at(%first, i64 %n)
    %index = load slot.index(%w)
    %dtype = load slot.dtype(%w)
    %flags = load slot.flags(%w)
    %rank = load slot.rank(%w)
    %shape = load slot.shape(%w)
    %bytes = load slot.bytes(%w)
    %written = load slot.written(%w)
    %itstype = load array.type(%a)
    if ne ptr %itstype, %type goto no                          ; before any other field is read
    %itsdtype = load array.dtype(%a)
    %samedtype = icmp eq ptr %itsdtype, %dtype
    %allflags = load array.flags(%a)
    %itsflags = and i32 %allflags, %flags
    %sameflags = icmp eq i32 %itsflags, %flags
    %rank32 = load array.rank(%a)
    %itsrank = sext i32 %rank32 to i64
    %samerank = icmp eq i64 %itsrank, %rank
    %two = and i1 %samedtype, %sameflags
    %fits = and i1 %two, %samerank
    %itsshape = load array.shape(%a)
    unless %fits goto no
    for i64 %d = 0 .. %rank {
      %want = load i64.at(%shape, i64 %d)
      %have = load i64.at(%itsshape, i64 %d)
      if ne i64 %have, %want goto no
    }
    %start = load array.data(%a)
    %stop = add i64 %start, %bytes
    %inside = load slot.inside(%w)
    if ne ptr %inside, null {
      %least = load slot.least(%w)
      %most = load slot.most(%w)
      %all = call i1 %inside(i64 %start, i64 %stop, i64 %least, i64 %most)
      unless %all goto no
    }
    %output = icmp ne i64 %written, 0
    %others = select i1 %output, i64 %n, i64 0                 ; an output overlaps none before it
    for i64 %k = 0 .. %others {
      %other = slot.at(%first, i64 %k)
      %kindex = load slot.index(%other)
      %kbytes = load slot.bytes(%other)
      %kstart = load i64.at(%slots, i64 %kindex)
      %kstop = add i64 %kstart, %kbytes
      %low = icmp ult i64 %start, %kstop
      %high = icmp ult i64 %kstart, %stop
      %shared = and i1 %low, %high
      if %shared goto no
    }
    store %start, i64.at(%slots, i64 %index)
  }
  %launch = inttoptr i64 LAUNCH to ptr
  call void %launch(ptr %provider, ptr %kernel, ptr %slots, i32 %team, i64 1)
  ret i32 1
no:
  ret i32 0
}
"""

# Whether all elements from one address to another are in least … most. An element is inside if it is at most
# %span above the least, compared as unsigned numbers. Whole vectors keep the largest distance in each lane.
# The remaining elements are checked one by one.
_INSIDE = """
define i1 @INSIDE(i64 %start, i64 %stop, i64 %least, i64 %most) {
  %below = icmp slt i64 %least, TYPE_LEAST
  %low = select i1 %below, i64 TYPE_LEAST, i64 %least
  %above = icmp sgt i64 %most, TYPE_MOST
  %high = select i1 %above, i64 TYPE_MOST, i64 %most
  if sgt i64 %low, %high {
    %none = icmp uge i64 %start, %stop
    ret i1 %none
  }
  %between = sub i64 %high, %low
  %lowest = NARROW(%low)
  %span = NARROW(%between)
  %lows = insertelement VECTOR poison, ELEMENT %lowest, i32 0
  %all.low = shufflevector VECTOR %lows, VECTOR poison, <LANES x i32> zeroinitializer
  %spans = insertelement VECTOR poison, ELEMENT %span, i32 0
  %all.span = shufflevector VECTOR %spans, VECTOR poison, <LANES x i32> zeroinitializer
  %last = sub i64 %stop, WIDTH
  loop i64 %at = %start, VECTOR %farthest = zeroinitializer {
    if sgt i64 %at, %last break
    %place = inttoptr i64 %at to ptr
    %x = load VECTOR, ptr %place, align BYTES
    %far = sub VECTOR %x, %all.low
    %more = icmp ugt VECTOR %far, %farthest
    %worst = select <LANES x i1> %more, VECTOR %far, VECTOR %farthest
    %after = add i64 %at, WIDTH
  } next %after, %worst
  %outside = icmp ugt VECTOR %farthest, %all.span
  %bits = bitcast <LANES x i1> %outside to iLANES
  if ne iLANES %bits, 0 ret i1 false
  loop i64 %rest = %at {
    if uge i64 %rest, %stop ret i1 true
    %one = inttoptr i64 %rest to ptr
    %y = load ELEMENT, ptr %one
    %apart = sub ELEMENT %y, %lowest
    if ugt ELEMENT %apart, %span ret i1 false
    %following = add i64 %rest, BYTES
  } next %following
}
"""


@cache
def layout_is_known() -> bool:
    """Whether arrays and tuples of this process have the memory layout that `_CALL` reads."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    base = np.zeros((4, 6), np.float32)
    arrays = (base, base[1:], base.T, np.zeros(()), np.zeros((2, 0, 3), np.int8))
    return _is_tuple(arrays) and all(_is_array(a) for a in arrays)


def _is_array(a: np.ndarray[Any, Any]) -> bool:
    at = {name: id(a) + offset for name, offset in _ARRAY.offset.items()}
    return (
        _word(at["type"]) == id(np.ndarray)
        and _word(at["data"]) == a.ctypes.data
        and _word(at["dtype"]) == id(a.dtype)
        and ctypes.c_int32.from_address(at["flags"]).value == a.flags.num
        and ctypes.c_int32.from_address(at["rank"]).value == a.ndim
        and tuple(_word(_word(at["shape"]) + 8 * d) for d in range(a.ndim)) == a.shape
    )


def _is_tuple(items: tuple[object, ...]) -> bool:
    at = id(items)
    return _word(at + _TUPLE.offset["size"]) == len(items) and all(
        _word(at + _ITEMS + 8 * n) == id(item) for n, item in enumerate(items)
    )


def _word(at: int) -> int:
    return ctypes.c_int64.from_address(at).value


Caller = Callable[[int, tuple[Any, ...]], int]


def caller(provider: int, kernel: int, team: int, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Caller:
    """A function of two arguments: the address of a frame's slots, and the tuple of all arrays, inputs first.
    It runs the kernel and returns 1, or returns 0 if an array does not fit.

    provider, kernel: addresses of a provider's table and of an entry. The caller of the function keeps both
    alive, and keeps the arrays alive until the function has returned.
    """
    slots = (*inputs, *outputs)
    shapes = [np.array([*s.shape, 0], np.int64) for s in slots]
    words = [provider, kernel, team, len(slots), id(np.ndarray)]
    for n, (slot, shape) in enumerate(zip(slots, shapes, strict=True)):
        written = int(n >= len(inputs))
        words += [slot.index, id(slot.dtype), slot.flags, len(slot.shape), shape.ctypes.data, slot.bytes]
        words += [written, *_indices(slot)]
    table = np.array(words, np.int64)
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    call = prototype(_address())
    at = int(table.ctypes.data)

    def run(frame: int, arrays: tuple[Any, ...], _keep: object = (table, shapes, slots)) -> int:
        found: int = call(at, frame, id(arrays))
        return found

    return run


def _indices(slot: Slot) -> tuple[int, int, int]:
    """The check that no element is outside the range: address of the check's code, least value, largest
    value. The address 0 means that any value is allowed."""
    if slot.values is None:
        return 0, 0, 0
    return _inside(slot.dtype), *slot.values


def inside_ir(name: str, dtype: np.dtype[Any]) -> str:
    """LLVM IR of `i1 name(i64 start, i64 stop, i64 least, i64 most)`. It says whether all integers of a type
    in the memory from start to stop have values from least to most."""
    holds, kind, lanes = np.iinfo(dtype), f"i{8 * dtype.itemsize}", _VECTOR // dtype.itemsize
    narrow = r"add i64 0, \1" if kind == "i64" else rf"trunc i64 \1 to {kind}"
    constants: dict[str, int | str] = {
        "INSIDE": name,
        "ELEMENT": kind,
        "VECTOR": f"<{lanes} x {kind}>",
        "TYPE_LEAST": holds.min,
        "TYPE_MOST": min(holds.max, np.iinfo(np.int64).max),  # no index is larger
        "BYTES": dtype.itemsize,
        "WIDTH": _VECTOR,
    }
    text = re.sub(r"NARROW\((%\w+)\)", narrow, _INSIDE).replace("LANES", str(lanes))
    return assemble(text, {}, constants)


@cache
def _inside(dtype: np.dtype[Any]) -> int:
    """Address of `inside` for one type of integers. The function is compiled on first use."""
    return launcher.compiled(inside_ir("inside", dtype), ("inside",), vectors=True)["inside"]


@cache
def _address() -> int:
    """Address of `call`, which is compiled on first use."""
    structs = {"table": _TABLE, "slot": _SLOT, "array": _ARRAY, "tuple": _TUPLE}
    places = {"FIRST": _TABLE.bytes, "ITEMS": _ITEMS, "LAUNCH": launcher.launcher()["launch"]}
    return launcher.compiled(assemble(_CALL, structs, places), ("call",))["call"]
