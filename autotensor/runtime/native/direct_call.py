"""The short way from Python to a kernel: one native step that checks the arrays, places them and launches.

    call(table, slots, arrays) ──▶ every array fits: slots filled, kernel run, 1
                                   anything else:    nothing run, 0; `arguments.fill` then finds the words

Checking in Python takes 1 us an array, and 3 us one of indices, of which none may be outside; a product of
32 x 32 matrices takes half a microsecond. The native check reads the fields of array and tuple objects
where CPython and NumPy keep them (NumPy's C interface: they are compiled into every extension).
`layout_is_known` looks at some objects first; where they differ, nobody calls this. It accepts less than
`arguments.fill`: subclasses of ndarray and equal copies of a dtype take the long way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from autotensor.runtime.arguments import Slot
from autotensor.runtime.native import launcher

_HEAD = object.__basicsize__  # of every object; its last field is the type
_TYPE = _HEAD - 8
_DATA, _RANK, _SHAPE, _DTYPE, _FLAGS = (_HEAD + n for n in (0, 8, 16, 40, 48))  # PyArrayObject_fields
_SIZE, _ITEMS = _HEAD, tuple.__basicsize__  # PyTupleObject

_WORDS_FIRST = 5  # of a table: provider, kernel, team, number of arrays, type of an array
_WORDS_EACH = 10  # index, dtype, flags, rank, shape, bytes, whether an output; check of indices, least, most

_CALL = """
define i32 @call(ptr %table, ptr %slots, ptr %arrays) {
entry:
  %provider = load ptr, ptr %table
  %p1 = getelementptr i64, ptr %table, i64 1
  %kernel = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %table, i64 2
  %team = load i32, ptr %p2
  %p3 = getelementptr i64, ptr %table, i64 3
  %count = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %table, i64 4
  %type = load ptr, ptr %p4
  %first = getelementptr i64, ptr %table, i64 FIRST
  %psize = getelementptr i8, ptr %arrays, i64 SIZE
  %size = load i64, ptr %psize
  %items = getelementptr i8, ptr %arrays, i64 ITEMS
  %complete = icmp eq i64 %size, %count
  br i1 %complete, label %next, label %no

next:                                                          ; array %n of %count
  %n = phi i64 [0, %entry], [%n1, %placed]
  %left = icmp slt i64 %n, %count
  br i1 %left, label %check, label %run
check:
  %pitem = getelementptr ptr, ptr %items, i64 %n
  %a = load ptr, ptr %pitem
  %skip = mul i64 %n, EACH
  %w0 = getelementptr i64, ptr %first, i64 %skip
  %index = load i64, ptr %w0
  %w1 = getelementptr i64, ptr %w0, i64 1
  %dtype = load ptr, ptr %w1
  %w2 = getelementptr i64, ptr %w0, i64 2
  %flags = load i32, ptr %w2
  %w3 = getelementptr i64, ptr %w0, i64 3
  %rank = load i64, ptr %w3
  %w4 = getelementptr i64, ptr %w0, i64 4
  %shape = load ptr, ptr %w4
  %w5 = getelementptr i64, ptr %w0, i64 5
  %bytes = load i64, ptr %w5
  %w6 = getelementptr i64, ptr %w0, i64 6
  %written = load i64, ptr %w6
  %ptype = getelementptr i8, ptr %a, i64 TYPE
  %itstype = load ptr, ptr %ptype
  %array = icmp eq ptr %itstype, %type                         ; before any other field is read
  br i1 %array, label %fields, label %no
fields:
  %pdtype = getelementptr i8, ptr %a, i64 DTYPE
  %itsdtype = load ptr, ptr %pdtype
  %samedtype = icmp eq ptr %itsdtype, %dtype
  %pflags = getelementptr i8, ptr %a, i64 FLAGS
  %allflags = load i32, ptr %pflags
  %itsflags = and i32 %allflags, %flags
  %sameflags = icmp eq i32 %itsflags, %flags
  %prank = getelementptr i8, ptr %a, i64 RANK
  %rank32 = load i32, ptr %prank
  %itsrank = sext i32 %rank32 to i64
  %samerank = icmp eq i64 %itsrank, %rank
  %two = and i1 %samedtype, %sameflags
  %fits = and i1 %two, %samerank
  %pshape = getelementptr i8, ptr %a, i64 SHAPE
  %itsshape = load ptr, ptr %pshape
  br i1 %fits, label %dims, label %no
dims:
  %d = phi i64 [0, %fields], [%d1, %dim]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %shaped
dim:
  %pwant = getelementptr i64, ptr %shape, i64 %d
  %want = load i64, ptr %pwant
  %phave = getelementptr i64, ptr %itsshape, i64 %d
  %have = load i64, ptr %phave
  %same = icmp eq i64 %have, %want
  %d1 = add i64 %d, 1
  br i1 %same, label %dims, label %no
shaped:
  %pdata = getelementptr i8, ptr %a, i64 DATA
  %start = load i64, ptr %pdata
  %stop = add i64 %start, %bytes
  %w7 = getelementptr i64, ptr %w0, i64 7
  %inside = load ptr, ptr %w7
  %anything = icmp eq ptr %inside, null
  br i1 %anything, label %known, label %indices
indices:
  %w8 = getelementptr i64, ptr %w0, i64 8
  %least = load i64, ptr %w8
  %w9 = getelementptr i64, ptr %w0, i64 9
  %most = load i64, ptr %w9
  %all = call i1 %inside(i64 %start, i64 %stop, i64 %least, i64 %most)
  br i1 %all, label %known, label %no
known:
  %output = icmp ne i64 %written, 0
  %others = select i1 %output, i64 %n, i64 0                   ; an output overlaps none before it
  br label %apart
apart:
  %k = phi i64 [0, %known], [%k1, %other]
  %before = icmp slt i64 %k, %others
  br i1 %before, label %other, label %placed
other:
  %kskip = mul i64 %k, EACH
  %k0 = getelementptr i64, ptr %first, i64 %kskip
  %kindex = load i64, ptr %k0
  %k5 = getelementptr i64, ptr %k0, i64 5
  %kbytes = load i64, ptr %k5
  %pk = getelementptr i64, ptr %slots, i64 %kindex
  %kstart = load i64, ptr %pk
  %kstop = add i64 %kstart, %kbytes
  %low = icmp ult i64 %start, %kstop
  %high = icmp ult i64 %kstart, %stop
  %shared = and i1 %low, %high
  %k1 = add i64 %k, 1
  br i1 %shared, label %no, label %apart
placed:
  %pslot = getelementptr i64, ptr %slots, i64 %index
  store i64 %start, ptr %pslot
  %n1 = add i64 %n, 1
  br label %next

run:
  %launch = inttoptr i64 LAUNCH to ptr
  call void %launch(ptr %provider, ptr %kernel, ptr %slots, i32 %team, i64 1)
  ret i32 1
no:
  ret i32 0
}
"""

# Whether all elements from one address to another are in least … most.
_INSIDE = """
define i1 @inside(i64 %start, i64 %stop, i64 %least, i64 %most) {
entry:
  br label %next
next:
  %at = phi i64 [%start, %entry], [%after, %element]
  %more = icmp ult i64 %at, %stop
  br i1 %more, label %element, label %yes
element:
  %place = inttoptr i64 %at to ptr
  %x = load TYPE, ptr %place
  %value = WIDENED
  %high = icmp sle i64 %value, %most
  %low = icmp sge i64 %value, %least
  %fits = and i1 %high, %low
  %after = add i64 %at, BYTES
  br i1 %fits, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
"""


@cache
def layout_is_known() -> bool:
    """Whether arrays and tuples of this process lie in memory as `_CALL` reads them."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    base = np.zeros((4, 6), np.float32)
    arrays = (base, base[1:], base.T, np.zeros(()), np.zeros((2, 0, 3), np.int8))
    return _is_tuple(arrays) and all(_is_array(a) for a in arrays)


def _is_array(a: np.ndarray[Any, Any]) -> bool:
    at = id(a)
    shape = tuple(_word(_word(at + _SHAPE) + 8 * d) for d in range(a.ndim)) if _rank(at) == a.ndim else None
    return (
        _word(at + _TYPE) == id(np.ndarray)
        and _word(at + _DATA) == a.ctypes.data
        and _word(at + _DTYPE) == id(a.dtype)
        and ctypes.c_int32.from_address(at + _FLAGS).value == a.flags.num
        and shape == a.shape
    )


def _is_tuple(items: tuple[object, ...]) -> bool:
    at = id(items)
    return _word(at + _SIZE) == len(items) and all(
        _word(at + _ITEMS + 8 * n) == id(item) for n, item in enumerate(items)
    )


def _word(at: int) -> int:
    return ctypes.c_int64.from_address(at).value


def _rank(at: int) -> int:
    return ctypes.c_int32.from_address(at + _RANK).value


Caller = Callable[[int, tuple[Any, ...]], int]


def caller(provider: int, kernel: int, team: int, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Caller:
    """A function of the address of a frame's slots and the tuple of all arrays, inputs first: runs the kernel
    and gives 1, or gives 0 when an array does not fit.

    provider, kernel: addresses of a provider's table and of an entry. The caller keeps both alive, and the
    arrays until it has returned.
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
    """How to check that no element is outside: where the code for it is, the least and the most; code 0: any
    may be."""
    if slot.values is None:
        return 0, 0, 0
    least, most = slot.values
    unsigned = slot.dtype.kind != "i"
    # Read as int64, an uint64 beyond its range is negative, so nothing negative may be inside.
    return _inside(slot.dtype.itemsize, unsigned), max(least, 0) if unsigned else least, most


@cache
def _inside(bytes_each: int, unsigned: bool) -> int:
    """Address of `inside` for integers of a type, compiled on first use."""
    kind = f"i{8 * bytes_each}"
    extend = "zext" if unsigned else "sext"
    widened = "add i64 %x, 0" if kind == "i64" else f"{extend} {kind} %x to i64"
    text = _INSIDE.replace("TYPE", kind).replace("WIDENED", widened).replace("BYTES", str(bytes_each))
    return launcher.compiled(text, ("inside",))["inside"]


@cache
def _address() -> int:
    """Address of `call`, compiled on first use."""
    places = {
        "FIRST": _WORDS_FIRST,
        "EACH": _WORDS_EACH,
        "SIZE": _SIZE,
        "ITEMS": _ITEMS,
        "TYPE": _TYPE,
        "DTYPE": _DTYPE,
        "FLAGS": _FLAGS,
        "RANK": _RANK,
        "SHAPE": _SHAPE,
        "DATA": _DATA,
        "LAUNCH": launcher.launcher()["launch"],
    }
    text = _CALL
    for name, value in places.items():
        text = text.replace(f"i64 {name}\n", f"i64 {value}\n").replace(f", {name}\n", f", {value}\n")
        text = text.replace(f"i64 {name} to ptr", f"i64 {value} to ptr")
    return launcher.compiled(text, ("call",))["call"]
