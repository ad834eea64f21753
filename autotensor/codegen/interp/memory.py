"""Memory of the interpreter: fresh contents, checked access, records of the threads that touched each
element.

    Memory     one flat array (of a caller, a workspace, an Alloc), with notes for races, reads before writes
    Tracked    a buffer's shape over a Memory; every load and store through it is checked and noted
    vload …    vector access without notes, for code that runs alone

A race is: two threads touch one element, at least one of them writes, and no barrier lies between. Blocks of
a grid never meet, so between two blocks any such pair is a race.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from autotensor.base.dtype import DType
from autotensor.base.errors import LoweringError
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.stmt import Stmt

Array = np.ndarray[Any, Any]
FILENAME = "<interpreted "  # distinguishes generated code from ours in a stack of frames
TRAP_BYTE = 0xA5  # integers start as …A5A5: negative or huge, so that an index with this value is found
_MANY = -1  # several readers


class IllegalProgram(LoweringError):
    """A program did something that the loop IR forbids: an index out of bounds, a race, a divergent barrier,
    …"""


@dataclass(frozen=True, slots=True)
class Site:
    """One load, store or barrier of a kernel's text."""

    kernel: str
    verb: str
    buffer: Buffer | None
    stmt: Stmt
    names: dict[str, str]  # Python name → variable, for messages

    def fail(self, what: str, fix: str = "") -> NoReturn:
        values = _values(self.names)
        where = f" with {values}" if values else ""
        raise IllegalProgram(
            f"kernel {self.kernel!r}: {what}, in `{str(self.stmt).strip()}`{where}.", fix=fix
        )


def _values(names: dict[str, str]) -> str:
    """The loop variables of the generated code that is running, as `i=3, j=0`."""
    found: dict[str, Any] = {}
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(FILENAME):
            for python, name in names.items():
                if python in frame.f_locals:
                    found.setdefault(name, frame.f_locals[python])
        frame = frame.f_back  # type: ignore[assignment]
    return ", ".join(f"{name}={found[name]}" for name in names.values() if name in found)


def fresh(size: int, dtype: DType) -> Array:
    """Fresh memory: all elements are NaN, a trap value, or True."""
    if dtype.is_float:
        return np.full(size, np.nan, dtype.numpy)
    if dtype.is_bool:
        return np.ones(size, np.bool_)
    return np.frombuffer(bytes([TRAP_BYTE]) * (size * dtype.bytes), dtype.numpy).copy()


class Memory:
    """One flat array. `written` is None when reads need no check; `shared`: several threads may touch it."""

    __slots__ = ("flat", "flying", "name", "readers", "shared", "writers", "written")

    def __init__(self, name: str, flat: Array, shared: bool, written: Array | None = None) -> None:
        self.name = name
        self.flat = flat
        self.shared = shared
        self.written = written
        self.flying: dict[int, int] = {}  # elements with an asynchronous store on its way → thread
        self.forget()

    @staticmethod
    def fresh(buffer: Buffer, shared: bool, strict: bool) -> Memory:
        size = buffer.span
        return Memory(
            buffer.name, fresh(size, buffer.dtype), shared, np.zeros(size, np.bool_) if strict else None
        )

    def forget(self) -> None:
        """Forgets which thread touched which element: a new kernel begins."""
        self.writers: dict[int, tuple[int, int, int]] = {}  # element → block, epoch, thread
        self.readers: dict[int, tuple[int, int, int]] = {}

    def noted_read(self, at: int, thread: Thread) -> str:
        """Records the read. Returns what is wrong with it, or ''."""
        me = (thread.block, thread.gang.epoch, thread.tid)
        wrote = self.writers.get(at)
        if wrote is not None and _conflict(wrote, me):
            return f"{thread.describe(me)} reads what {thread.describe(wrote)} wrote"
        read = self.readers.get(at)
        if read is None or (read[0] == me[0] and read[1] < me[1]):
            self.readers[at] = me
        elif read[0] != me[0]:
            self.readers[at] = (_MANY, 0, _MANY)
        elif read[2] != me[2]:
            self.readers[at] = (me[0], me[1], _MANY)
        return ""

    def noted_write(self, at: int, thread: Thread) -> str:
        me = (thread.block, thread.gang.epoch, thread.tid)
        wrote, read = self.writers.get(at), self.readers.get(at)
        self.writers[at] = me
        if wrote is not None and _conflict(wrote, me):
            return f"{thread.describe(me)} writes what {thread.describe(wrote)} wrote"
        if read is not None and _conflict(read, me):
            return f"{thread.describe(me)} writes what {thread.describe(read)} read"
        return ""


def _conflict(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    return a[0] != b[0] or (a[1] == b[1] and a[2] != b[2])


class Gang:
    """Threads that meet at barriers: those of a CPU call, or of one GPU block."""

    __slots__ = ("axes", "epoch", "kind", "shared")

    def __init__(self, kind: str, axes: dict[str, int]) -> None:
        self.kind = kind  # for messages
        self.axes = axes  # thread axis → extent
        self.epoch = 0  # barriers passed
        self.shared: dict[int, Memory] = {}  # Alloc site → memory


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange of values between a thread and the lane `own xor mask` of its warp."""

    site: Site
    value: Any
    mask: int


class Thread:
    """A running thread: its index, block, position on the thread axes, and memory."""

    __slots__ = ("at", "block", "gang", "groups", "memory", "nthreads", "strict", "tid")

    def __init__(
        self,
        tid: int,
        nthreads: int,
        block: int,
        at: dict[str, int],
        memory: dict[str, Memory],
        gang: Gang,
        strict: bool,
    ) -> None:
        self.tid = tid
        self.nthreads = nthreads
        self.block = block
        self.at = at
        self.memory = memory
        self.gang = gang
        self.strict = strict
        self.groups: list[list[Arrival]] = [[]]  # groups of asynchronous stores; the last group is open

    def commit(self) -> None:
        self.groups.append([])

    def await_copies(self, left: int) -> None:
        """Carries out the oldest groups until only `left` groups are on their way."""
        while len(self.groups) - 1 > left:
            for tracked, at, value, site in self.groups.pop(0):
                del tracked.memory.flying[at]
                tracked.write(at, value, self, site)

    @property
    def lanes_of_warp(self) -> int:
        """The number of threads of its warp, including threads that have ended."""
        first = self.tid // 32 * 32
        return min(32, self.nthreads - first)

    def describe(self, who: tuple[int, int, int]) -> str:
        block, _, tid = who
        name = "another thread" if tid == _MANY else f"thread {tid}"
        return f"{name} of block {block}" if self.gang.kind == "block" and block != _MANY else name

    def alloc(self, site: int, buffer: Buffer, common: bool) -> Memory:
        """Memory of an Alloc. `common`: all threads of the gang share one memory, which is fresh once."""
        if not common:
            return Memory.fresh(buffer, False, self.strict)
        found = self.gang.shared.get(site)
        if found is None:
            found = self.gang.shared[site] = Memory.fresh(buffer, True, self.strict)
        return found


def flat_view(memory: Memory, buffer: Buffer) -> Array:
    _check_size(memory, buffer)
    return memory.flat


def nd_view(memory: Memory, buffer: Buffer) -> Array:
    """The memory in the buffer's shape; a scalar buffer has shape (1,)."""
    _check_size(memory, buffer)
    if len(buffer.extents) == 1:
        return memory.flat
    if not buffer.strides or 0 in buffer.shape:
        return memory.flat[: buffer.size].reshape(buffer.shape or (1,))
    strides = tuple(s * memory.flat.itemsize for s in buffer.strides)
    return np.lib.stride_tricks.as_strided(memory.flat, buffer.shape, strides)


def _check_size(memory: Memory, buffer: Buffer) -> None:
    # the call gives the size of buffers with open extents
    if memory.flat.size < buffer.span and not buffer.extents:
        raise IllegalProgram(
            f"buffer {buffer.name!r} of shape {buffer.shape} needs {buffer.span} elements; "
            f"its memory has {memory.flat.size}."
        )


class Tracked:
    """A buffer that checks and records every access. It is slow."""

    __slots__ = ("buffer", "memory", "shape", "strides")

    def __init__(self, memory: Memory, buffer: Buffer, flat: bool) -> None:
        _check_size(memory, buffer)
        self.memory = memory
        self.buffer = buffer
        self.shape = (memory.flat.size,) if flat else buffer.shape or (1,)
        self.strides = (1,) if flat else buffer.row_major() or (1,)

    def address(self, index: tuple[int, ...], site: Site) -> int:
        at = 0
        for i, n, s in zip(index, self.shape, self.strides, strict=True):
            if not 0 <= i < n:
                out_of_bounds(site, index, self.shape)
            at += i * s
        return at

    def load(self, thread: Thread, mask: Any, index: tuple[Any, ...], site: Site) -> Any:
        lanes = _lanes(index)
        if not lanes:
            at = self.address(index, site)
            self._read(at, thread, site)
            value = self.memory.flat[at]
            return value if self.buffer.dtype.is_float else value.item()
        out = np.zeros(lanes, self.memory.flat.dtype)
        for lane, one in enumerate(_split(index, lanes)):
            if mask is None or mask[lane]:
                at = self.address(one, site)
                self._read(at, thread, site)
                out[lane] = self.memory.flat[at]
        return out

    def copy(self, thread: Thread, mask: Any, value: Any, index: tuple[Any, ...], site: Site) -> None:
        """An asynchronous store: it happens when it is awaited. Until then no thread may touch its
        elements."""
        lanes = _lanes(index)
        for lane, one in enumerate(_split(index, lanes) if lanes else [index]):
            if mask is None or mask[lane]:
                at = self.address(one, site)
                self._untouched(at, "written", site)
                wrong = self.memory.noted_write(at, thread) if self.memory.shared else ""
                if wrong:
                    _race(site, self.buffer, at, wrong)
                self.memory.flying[at] = thread.tid
                thread.groups[-1].append((self, at, value[lane] if lanes else value, site))

    def _untouched(self, at: int, verb: str, site: Site) -> None:
        """Raises IllegalProgram for an element with an asynchronous store on its way."""
        owner = self.memory.flying.get(at)
        if owner is not None:
            site.fail(
                f"element {at} of {self.buffer.name!r} is {verb} while thread {owner}'s copy is on its way",
                "Await the copies, and put a barrier behind it.",
            )

    def _read(self, at: int, thread: Thread, site: Site) -> None:
        self._untouched(at, "read", site)
        if self.memory.written is not None and not self.memory.written[at]:
            site.fail(f"element {at} of {self.buffer.name!r} is read but was never written")
        if self.memory.shared:
            wrong = self.memory.noted_read(at, thread)
            if wrong:
                _race(site, self.buffer, at, wrong)

    def store(self, thread: Thread, mask: Any, value: Any, index: tuple[Any, ...], site: Site) -> None:
        lanes = _lanes(index)
        if not lanes:
            self.write(self.address(index, site), value, thread, site)
            return
        seen: set[int] = set()
        for lane, one in enumerate(_split(index, lanes)):
            if mask is None or mask[lane]:
                at = self.address(one, site)
                if at in seen:
                    _twice(site, self.buffer, at)
                seen.add(at)
                self.write(at, value[lane], thread, site)

    def write(self, at: int, value: Any, thread: Thread, site: Site) -> None:
        self._untouched(at, "written", site)
        if self.memory.shared:
            wrong = self.memory.noted_write(at, thread)
            if wrong:
                _race(site, self.buffer, at, wrong)
        if self.memory.written is not None:
            self.memory.written[at] = True
        self.memory.flat[at] = value


# an asynchronous store: buffer, position, value, and the statement's site
Arrival = tuple[Tracked, int, Any, Site]


def _lanes(index: tuple[Any, ...]) -> int:
    """The number of lanes of an access; 0 for a scalar access."""
    return max((i.size for i in index if isinstance(i, np.ndarray)), default=0)


def _split(index: tuple[Any, ...], lanes: int) -> list[tuple[int, ...]]:
    columns = [i.tolist() if isinstance(i, np.ndarray) else [i] * lanes for i in index]
    return list(zip(*columns, strict=True))


def out_of_bounds(site: Site, index: tuple[Any, ...], shape: tuple[int, ...]) -> NoReturn:
    assert site.buffer is not None
    text = ", ".join(str(i) for i in index)
    flat = "" if shape == site.buffer.shape else f" {site.buffer.shape}, which has {shape[0]} elements"
    site.fail(f"{site.verb} of {site.buffer.name}[{text}] is outside its shape{flat or f' {shape}'}")


def _race(site: Site, buffer: Buffer, at: int, wrong: str) -> NoReturn:
    index = (
        np.unravel_index(at, buffer.shape)
        if buffer.shape and not buffer.strides and at < buffer.size
        else (at,)
    )
    text = ", ".join(str(int(i)) for i in index)
    fix = (
        "Put a barrier between them."
        if buffer.scope is Scope.SHARED
        else "Let one thread do it, or put a barrier between."
    )
    site.fail(f"race on {buffer.name}[{text}]: {wrong} without a barrier between", fix)


def _twice(site: Site, buffer: Buffer, at: int) -> NoReturn:
    site.fail(f"two lanes of one vector store write element {at} of {buffer.name!r}")


def vload(view: Array, mask: Any, index: tuple[Any, ...], site: Site) -> Array:
    """Lanes of a vector load; 0 where the mask is false."""
    lanes = _lanes(index)
    if mask is None:
        _vcheck(view, index, None, site)
        return view[index]  # type: ignore[no-any-return]
    if not np.any(mask):
        return np.zeros(lanes, view.dtype)
    _vcheck(view, index, mask, site)
    safe = tuple(np.where(mask, i, 0) for i in index)
    return np.where(mask, view[safe], np.zeros((), view.dtype))


def vstore(view: Array, mask: Any, value: Array, index: tuple[Any, ...], site: Site) -> None:
    """Stores the lanes where the mask holds. No two lanes may store to one element."""
    if mask is not None:
        keep = np.nonzero(np.broadcast_to(mask, value.shape))[0]
        index = tuple(i[keep] if isinstance(i, np.ndarray) else i for i in index)
        value = value[keep]
        if not keep.size:
            return
    _vcheck(view, index, None, site)
    places = _split(index, value.size)
    if len(set(places)) != value.size:
        assert site.buffer is not None
        _twice(site, site.buffer, next(p for p in places if places.count(p) > 1)[-1])
    view[index] = value


def _vcheck(view: Array, index: tuple[Any, ...], mask: Any, site: Site) -> None:
    for i, n in zip(index, view.shape, strict=True):
        bad = (i < 0) | (i >= n) if isinstance(i, np.ndarray) else np.array(not 0 <= i < n)
        if mask is not None:
            bad = bad & mask
        if bad.any():
            lane = int(np.argmax(bad)) if bad.ndim else 0
            one = tuple(int(x[lane]) if isinstance(x, np.ndarray) else x for x in index)
            out_of_bounds(site, one, view.shape)


def vselect(cond: Any, then: Any, otherwise: Any, mask: Any) -> Any:
    """Lanes of `then` or `otherwise`, which are functions of the selected lanes and touch no other lanes."""
    on = cond if mask is None else cond & mask
    off = ~cond if mask is None else ~cond & mask
    if not off.any():
        return then(on)
    if not on.any():
        return otherwise(off)
    return np.where(cond, then(on), otherwise(off))
