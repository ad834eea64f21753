"""The interpreter: THE definition of the loop IR. It is slow and simple, and checks everything.

    run_program(program, {"A": a, "B": b, "C": c})        all kernels in order, arrays changed in place

It defines the following beyond the nodes' own docstrings:

* At LOOP level a buffer has one index per axis. At FLAT level it has a single index: the position in memory,
  counted in elements, with strides included.
* A PARALLEL loop gives thread t of n the iterations [extent*t//n, extent*(t+1)//n). Nested PARALLEL loops run
  serially. Outside of a parallel loop, stores to GLOBAL buffers happen in thread 0 only; every thread does
  everything else. A kernel with neither a parallel loop nor a barrier is run by thread 0 alone.
* THREAD loops run as on a GPU: every thread of every block runs the whole kernel, and a loop over threadIdx.x
  takes the thread's own index if it is below the extent. Each block has its own SHARED memory, each thread
  its own LOCAL and REGISTER memory.
* Integers wrap; x // 0 and x % 0 are 0; a float that does not fit an integer gives some integer. MIN and MAX
  give NaN if either operand is NaN.
* Each operation rounds to its type: nothing is fused, and 16-bit floats stay 16 bits.
* An Async store happens when its thread awaits it: until then no thread may touch its elements. `shuffle_xor`
  gives the value of another of the 32 lanes of a warp; all lanes must reach it together.

It reports as `IllegalProgram`: indices out of bounds, two lanes of a vector store on one element, races
between threads, barriers that not all threads reach, accesses to elements while an asynchronous copy of them
is on its way, and with `strict=True` reads of elements that nothing has written (for programs before the
passes: afterwards vector loads may read lanes that they do not use).

Fresh memory is NaN, a trap value (bytes A5) for integers, True for bools. `source.py` turns
kernels into Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from autotensor.base.errors import ArgumentError
from autotensor.codegen.interp.memory import (
    Array,
    Exchange,
    Gang,
    IllegalProgram,
    Memory,
    Site,
    Thread,
)
from autotensor.codegen.interp.source import PythonKernel, compile_func, thread_axes
from autotensor.ir.func import Buffer, PrimFunc, Program, Role
from autotensor.ir.stmt import Barrier, For, ForKind
from autotensor.ir.visit import any_node

__all__ = ["IllegalProgram", "run_func", "run_program", "source_of"]

WARP = 32  # lanes that exchange values
_OWN = (Role.WORKSPACE, Role.PREPARED)  # allocated here
_WRITTEN = (Role.INPUT, Role.CONSTANT)  # these have values before the first kernel


def run_program(
    program: Program,
    arrays: Mapping[str, Array],
    *,
    nthreads: int = 1,
    check: bool = True,
    strict: bool = False,
) -> None:
    """Runs the prepare kernels, then the run kernels, on `arrays` (buffer name → array), in place.

    Workspace and prepared buffers are fresh; outputs keep the caller's values until a kernel writes them.
    nthreads: the number of CPU threads, which meet at the end of each kernel. With two or more threads, races
    between them are found.
    check: compare arrays with the program's arguments, and indices with shapes. strict: check that elements
    are written before they are read. Raises ArgumentError for missing or wrong arrays, IllegalProgram as
    above.
    """
    memories: dict[str, Memory] = {}
    copies: list[tuple[Array, Memory, Buffer]] = []
    for buffer, role in program.args:
        if role in _OWN:
            memories[buffer.name] = Memory.fresh(buffer, True, strict)
            continue
        array = _argument(buffer, arrays, role is Role.OUTPUT, check)
        flat = _flat(array, buffer)
        if flat is None:
            flat = _copied_in(array, buffer)
            if role is Role.OUTPUT:
                copies.append(
                    (array, memories.setdefault(buffer.name, Memory(buffer.name, flat, True)), buffer)
                )
        written = None if role in _WRITTEN or not strict else np.zeros(flat.size, np.bool_)
        memory = memories.setdefault(buffer.name, Memory(buffer.name, flat, True))
        memory.written = written
    for func in (*program.prepare, *program.run):
        _run(func, memories, nthreads, check, strict)
    for array, memory, buffer in copies:
        array[...] = _strided(memory.flat, buffer)


def run_func(func: PrimFunc, arrays: Mapping[str, Array], tid: int = 0, nthreads: int = 1) -> None:
    """Runs the part of thread `tid` of `nthreads` in one kernel (for a GPU kernel: the whole grid), in place.

    Raises IllegalProgram when the threads would have to meet at a barrier: use `run_program`.
    """
    memories, copies = {}, []
    for buffer in func.params:
        array = _argument(buffer, arrays, False, True)
        flat = _flat(array, buffer)
        if flat is None:
            flat = _copied_in(array, buffer)
            copies.append((array, flat, buffer))
        memories[buffer.name] = Memory(buffer.name, flat, True)
    if thread_axes(func):
        _run(func, memories, 1, True, False)
    else:
        code = _compiled(func, False, True)
        if code.is_generator and nthreads > 1:
            raise IllegalProgram(
                f"kernel {func.name!r} has a barrier; its threads cannot run one after another."
            )
        with np.errstate(all="ignore"):
            _finish(code, Thread(tid, nthreads, 0, {}, memories, Gang("call", {}), False))
    for array, flat, buffer in copies:
        if array.flags.writeable:
            array[...] = _strided(flat, buffer)


def source_of(func: PrimFunc) -> str:
    """The Python text that the interpreter runs for a kernel."""
    return _compiled(func, False, True).source


@lru_cache(maxsize=128)
def _compiled(func: PrimFunc, careful: bool, check: bool) -> PythonKernel:
    with np.errstate(all="ignore"):
        return compile_func(func, careful, check)


# -- arrays --------------------------------------------------------------------------------------------------


def _argument(buffer: Buffer, arrays: Mapping[str, Array], is_output: bool, check: bool) -> Array:
    array = arrays.get(buffer.name)
    if array is None:
        raise ArgumentError(
            f"array {buffer.name!r} is missing; given are {', '.join(sorted(arrays)) or 'none'}."
        )
    if check and (array.shape != buffer.shape or array.dtype != buffer.dtype.numpy):
        raise ArgumentError(
            f"array {buffer.name!r} is {array.dtype} of shape {array.shape}; "
            f"expected {buffer.dtype} of shape {buffer.shape}."
        )
    if is_output and not array.flags.writeable:
        raise ArgumentError(f"array {buffer.name!r} is an output but cannot be written.")
    return array


def _flat(array: Array, buffer: Buffer) -> Array | None:
    """The array's own memory as one axis; None when its layout differs from the buffer's."""
    dense = not buffer.strides or (
        buffer.span == buffer.size and buffer.strides == Buffer("", buffer.shape, buffer.dtype).row_major()
    )
    return array.reshape(-1) if dense and array.flags.c_contiguous else None


def _strided(flat: Array, buffer: Buffer) -> Array:
    strides = tuple(s * flat.itemsize for s in buffer.row_major())
    return np.lib.stride_tricks.as_strided(flat, buffer.shape, strides)


def _copied_in(array: Array, buffer: Buffer) -> Array:
    flat = np.zeros(buffer.span, array.dtype)
    _strided(flat, buffer)[...] = array
    return flat


# -- threads -------------------------------------------------------------------------------------------------


def _run(func: PrimFunc, memories: dict[str, Memory], nthreads: int, check: bool, strict: bool) -> None:
    """Runs one kernel with all its threads. All of them have ended when this function returns."""
    own = {b.name: memories[b.name] for b in func.params}
    for memory in own.values():
        memory.forget()
    if not _shares_work(func):
        nthreads = 1
    together = nthreads > 1 or bool(thread_axes(func))
    code = _compiled(func, together or strict, check)
    with np.errstate(all="ignore"):
        if code.axes:
            _grid(func, code, own, strict)
        elif together:
            gang = Gang("call", {})
            _meet(func, code, [Thread(t, nthreads, 0, {}, own, gang, strict) for t in range(nthreads)], gang)
        else:
            for memory in own.values():
                memory.shared = False
            _finish(code, Thread(0, 1, 0, {}, own, Gang("call", {}), strict))
            for memory in own.values():
                memory.shared = True


@lru_cache(maxsize=128)
def _shares_work(func: PrimFunc) -> bool:
    """Whether the threads of a CPU kernel share its work or meet; otherwise thread 0 runs the kernel
    alone."""
    return any_node(
        func.body, lambda n: isinstance(n, Barrier) or (isinstance(n, For) and n.kind is ForKind.PARALLEL)
    )


def _finish(code: PythonKernel, thread: Thread) -> None:
    """Runs a single thread to its end; barriers mean nothing."""
    result = code.function(thread)
    if code.is_generator:
        for _ in result:
            pass


def _grid(func: PrimFunc, code: PythonKernel, memories: dict[str, Memory], strict: bool) -> None:
    """Runs all blocks, one after another. The threads of a block run together."""
    blocks = {name: n for name, n in code.axes.items() if name.startswith("blockIdx")}
    threads = {name: n for name, n in code.axes.items() if name not in blocks}
    for number, block in enumerate(_points(blocks)):
        gang = Gang("block", threads)
        team = [
            Thread(t, prod(threads.values()), number, {**block, **at}, memories, gang, strict)
            for t, at in enumerate(_points(threads))
        ]
        _meet(func, code, team, gang)


def _points(axes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Every combination of indices; x changes fastest, as in hardware."""
    names = sorted(axes, reverse=True)
    for values in itertools.product(*(range(axes[n]) for n in names)):
        yield dict(zip(names, values, strict=True))


def _meet(func: PrimFunc, code: PythonKernel, team: Sequence[Thread], gang: Gang) -> None:
    """Runs each thread up to its next barrier, in turn, until all have ended.

    Raises IllegalProgram when some threads wait at a barrier and others have ended or wait at another one.
    """
    if not code.is_generator:
        for thread in team:
            code.function(thread)
        return
    live = [_Running(t, code.function(t)) for t in team]
    while live:
        for r in live:
            r.go_on(None)
        _exchange(func, live)
        ended = [r.thread for r in live if r.at is None]
        waiting = [(r.thread, r.at) for r in live if isinstance(r.at, Site)]
        if waiting:
            _all_together(func, waiting, ended)
        gang.epoch += 1
        live = [r for r in live if r.at is not None]


class _Running:
    """A thread and the point where it waits: a barrier, an exchange, or (None) its end."""

    __slots__ = ("at", "body", "thread")

    def __init__(self, thread: Thread, body: Generator[Site | Exchange, Any, None]) -> None:
        self.thread = thread
        self.body = body
        self.at: Site | Exchange | None = None

    def go_on(self, value: Any) -> None:
        try:
            self.at = self.body.send(value)
        except StopIteration:
            self.at = None


def _exchange(func: PrimFunc, live: Sequence[_Running]) -> None:
    """Lets lanes exchange values until none waits for another lane. Warps do not wait for one another.

    Raises IllegalProgram when not all lanes of a warp come to an exchange, or a lane reads from a lane that
    does not exist.
    """
    for _, group in itertools.groupby(live, lambda r: r.thread.tid // WARP):
        warp = list(group)
        while any(isinstance(r.at, Exchange) for r in warp):
            given = {r.thread.tid: _given(func, warp, r) for r in warp}
            for r in warp:
                assert isinstance(r.at, Exchange)
                peer = r.thread.tid ^ r.at.mask
                if peer not in given:
                    r.at.site.fail(f"lane {peer % WARP} is asked for its value, and there is none")
                r.go_on(given[peer])


def _given(func: PrimFunc, warp: Sequence[_Running], r: _Running) -> Any:
    first = next(x for x in warp if isinstance(x.at, Exchange))
    assert isinstance(first.at, Exchange)
    if isinstance(r.at, Exchange) and r.at.site is first.at.site and len(warp) == first.thread.lanes_of_warp:
        return r.at.value
    does = (
        "has ended"
        if r.at is None or len(warp) < first.thread.lanes_of_warp
        else "waits at a barrier"
        if isinstance(r.at, Site)
        else "exchanges at another place"
    )
    who = f"thread {r.thread.tid}" if len(warp) == first.thread.lanes_of_warp else "another"
    raise IllegalProgram(
        f"kernel {func.name!r}: divergent exchange: thread {first.thread.tid} of block {first.thread.block} "
        f"exchanges values with its warp, {who} {does}.",
        fix="Lanes must exchange values where all of a warp pass.",
    )


def _all_together(func: PrimFunc, waiting: list[tuple[Thread, Site]], ended: list[Thread]) -> None:
    first = waiting[0]
    elsewhere = [t for t, site in waiting if site is not first[1]]
    if not ended and not elsewhere:
        return
    other = (ended or elsewhere)[0]
    does = "has ended" if ended else "waits at another one"
    raise IllegalProgram(
        f"kernel {func.name!r}: divergent barrier: thread {first[0].tid} of block {first[0].block} waits at "
        f"a barrier, thread {other.tid} {does}.",
        fix="A barrier must stand where all threads pass, outside of conditions that depend on the thread.",
    )
