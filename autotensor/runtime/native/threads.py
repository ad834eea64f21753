"""Teams of threads that run the `nthreads` copies of a kernel, and how Python starts a team.

    launch(fn, args, nthreads) ──▶ native launch ──▶ region of the provider ──▶ fn(ctx, args, tid, team size)

The first available of these providers is used: the OpenMP runtime already in this process, our own pool, the
system's libgomp, the libgomp in xgboost's wheel, none (serial).
The runtime in this process comes first because its threads spin for milliseconds after a call, of torch for
example. A second team would compete with them: models alternating with torch take 1.2 to 2.5 times as long.
A region of two threads takes 0.3 us with the pool, and 0.6 with libgomp. libgomp's calls often wait for
several ticks of 4 ms, if other threads run (onnxruntime's, or another process's), or after 20 ms without a
call. The pool (pool.py) continues without the threads that do not come (benchmarks/steadiness.py).
A launch is one ctypes call, without the GIL. Each launch has its own context, so any number of Python threads
may launch at once. A team may be smaller than requested; kernels are right for any size.

After `fork`, the threads of an OpenMP runtime or of the pool no longer exist, and libgomp would wait for them
for ever. At its first launch, a forked child starts a pool of its own and rewrites its copies of the parent's
tables. So modules loaded before the fork find the pool through the same tables, and their calls are as fast
as the parent's. The child does not use an OpenMP runtime that was loaded before the fork, but uses one that
it loads itself.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from typing import Any

from autotensor.base.counted import counted
from autotensor.base.errors import InputError
from autotensor.base.target import default_threads, usable_cores
from autotensor.runtime.native import launcher
from autotensor.runtime.native.pool import MOST_WORKERS, POOL, WORKER

PROVIDERS = ("openmp-loaded", "pool", "openmp-system", "openmp-xgboost", "serial")
_OPENMP_NAMES = ("libgomp", "libiomp5", "libomp")
_XGBOOST_FOLDERS = ("xgboost_cpu.libs", "xgboost.libs")  # folders of its wheels that hold their libraries
_OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


_C_TYPES: dict[str, type[ctypes.c_void_p | ctypes.c_int32]] = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32}


class _Table(ctypes.Structure):
    """The structure `PROVIDER` of launcher.py."""

    _fields_ = tuple((name, _C_TYPES[kind]) for name, kind in launcher.PROVIDER.type.items())


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """One way of running a team."""

    name: str  # one of PROVIDERS
    detail: str  # the library's path, the pool's size
    table: _Table
    keep: tuple[Any, ...]  # objects that the table points to
    # fn address, args address, nthreads, count; releases the GIL
    start: Callable[[int, int, int, int], None]

    def __str__(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


_providers: dict[str, Provider | None] = {}
_making = RLock()  # held while _providers changes
_chosen: Provider | None = None
_tables: list[_Table] = []  # tables of all providers with threads, also of those from before a fork
_forked = False  # True after a fork until threads are started: the tables lead to no threads
_held: list[Any] = []  # locks that are held while this process forks
_barred: frozenset[str] | None = None  # paths of OpenMP runtimes that a parent may have used; None: no fork


def launch(fn: int, args: int, nthreads: int, count: int = 1, provider: Provider | None = None) -> None:
    """Runs the native function at address `fn` in a team of up to `nthreads`, `count` times, one region after
    another.
    `args` is the address of the argument array; the caller keeps alive everything that the array points to.
    """
    if provider is None or _forked:
        provider = provider_here(provider)
    provider.start(fn, args, nthreads, count)


def table_of(provider: Provider | None = None) -> int:
    """Address of a provider's table, or of the table in use if None; for native code that calls `launch`.

    The address stays valid in forked children, once `is_forked` is False there.
    """
    return ctypes.addressof(provider_here(provider).table)


def is_forked() -> bool:
    """Whether this process is a forked child without threads. Its first launch must be made from Python."""
    return _forked


def provider_here(provider: Provider | None) -> Provider:
    """The given provider, or the one in use if None. It has threads in this process."""
    if _forked:
        _start_again()
    return provider or current()


def current() -> Provider:
    """The provider in use. The first call chooses it."""
    global _chosen
    if _forked:
        _start_again()
    chosen = _chosen  # read once, because another thread may reset it meanwhile
    if chosen is None:
        chosen = _chosen = choose()
    return chosen


def look_again() -> None:
    """Chooses again if our own pool is in use and an OpenMP runtime has been loaded since, as torch does."""
    global _chosen
    chosen = _chosen
    if chosen is not None and chosen.name == "pool" and loaded_openmp():
        with _making:
            _providers.pop("openmp-loaded", None)
        _chosen = None


def choose(name: str | None = None) -> Provider:
    """The named provider, or the first of PROVIDERS that this process can use.

    Raises InputError if the name is unknown or the provider is not available here.
    """
    if name is None:
        return next(p for p in map(_provider, PROVIDERS) if p is not None)
    if name not in PROVIDERS:
        raise InputError(f"thread provider {name!r} is unknown.", fix=f"Known: {', '.join(PROVIDERS)}.")
    found = _provider(name)
    if found is None and _barred is not None and name.startswith("openmp"):
        found = _provider("pool")  # the named provider would wait for threads of the parent
    if found is None:
        raise InputError(f"thread provider {name!r} is not available in this process.")
    return found


def available() -> tuple[str, ...]:
    """Names of the providers that this process can use. Looking for them starts the pool."""
    return tuple(n for n in PROVIDERS if _provider(n) is not None)


def _provider(name: str) -> Provider | None:
    if _forked:
        _start_again()
    with _making:  # threads that make their first calls at the same time share one pool
        if name not in _providers:
            _providers[name] = _make(name)
        return _providers[name]


def _make(name: str) -> Provider | None:
    match name:
        case "openmp-loaded":
            return next((p for p in (_openmp(name, path) for path in loaded_openmp()) if p), None)
        case "openmp-system" | "openmp-xgboost" if _barred is not None:
            return None  # this library may be one that the parent uses
        case "openmp-system":
            return _openmp(name, "libgomp.so.1")
        case "openmp-xgboost":
            return next((p for p in (_openmp(name, path) for path in xgboost_openmp()) if p), None)
        case "pool":
            return _pool(_table("pool_region"))
        case _:
            return _around("serial", "", _table("serial_region"))


def loaded_openmp() -> list[str]:
    """Paths of OpenMP runtimes that are loaded in this process (on Linux; on other systems none is found).

    xgboost's runtime is left out, because the cost model loads it and runs it with one thread. Runtimes from
    before a fork are left out, too.
    """
    paths: list[str] = []
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            is_openmp = os.path.basename(path).startswith(_OPENMP_NAMES)
            if is_openmp and path not in paths and not _is_xgboosts(path):
                paths.append(path)
    return [path for path in paths if path not in (_barred or ())]


def _is_xgboosts(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) in _XGBOOST_FOLDERS


def xgboost_openmp() -> list[str]:
    """Paths of the OpenMP runtime inside an installed xgboost wheel, found without importing xgboost."""
    roots = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path])
    return [
        path
        for root in roots
        if root
        for folder in _XGBOOST_FOLDERS
        for path in sorted(glob.glob(os.path.join(glob.escape(root), folder, "libgomp*.so*")))
    ]


def _openmp(name: str, library: str) -> Provider | None:
    try:
        lib = ctypes.CDLL(library)
        symbols = [_address(getattr(lib, symbol)) for symbol in _OPENMP_SYMBOLS]
    except (OSError, AttributeError):
        return None
    return _around(name, library, _table("openmp_region", symbols), keep=(lib,))


def _pool(table: _Table) -> Provider | None:
    """A pool behind that table. It has one worker fewer than the cores or the requested threads, because the
    caller works too."""
    wanted = min(max(default_threads(), os.cpu_count() or 1, 2) - 1, MOST_WORKERS)
    memory = ctypes.create_string_buffer(POOL.bytes + wanted * WORKER.bytes + 64)
    for shared in (memory, table):
        # Workers read this object until the process ends, long after the interpreter has deleted this module.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(shared))
    table.pool = -(-ctypes.addressof(memory) // 64) * 64
    starter = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(
        launcher.launcher()["start_pool"]
    )
    workers = int(starter(ctypes.addressof(table), wanted))
    return _around("pool", counted(workers, "worker"), table, keep=(memory,)) if workers else None


def _table(region: str, symbols: list[int] | None = None, pool: int = 0) -> _Table:
    table = _Table(launcher.launcher()[region], *(symbols or [0, 0, 0]), pool, usable_cores(), 0)
    if region != "serial_region":
        _tables.append(table)
    return table


def _around(name: str, detail: str, table: _Table, keep: tuple[Any, ...] = ()) -> Provider:
    prototype = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    )
    native_launch = prototype(launcher.launcher()["launch"])
    address = ctypes.addressof(table)

    def start(fn: int, args: int, nthreads: int, count: int) -> None:
        native_launch(address, fn, args, nthreads, count)

    return Provider(name, detail, table, (*keep, native_launch), start)


def _address(function: Any) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


def _start_again() -> None:
    """Gives a forked child its threads: a pool. All tables from before the fork then lead to this pool."""
    global _forked, _chosen
    with _making:
        if not _forked:
            return  # another thread was faster
        _providers.clear()
        if _tables:
            first = _chosen.table if _chosen and _chosen.table in _tables else _tables[0]
            _providers["pool"] = _pool(first)
            for table in _tables:
                table.pool, table.region = first.pool, launcher.launcher()["pool_region"]
        _chosen = None
        _forked = False  # last, because until then other threads wait for the lock


def _before_fork() -> None:
    """Waits until no other thread makes a provider or is inside LLVM. Otherwise a child would find things
    half done, and locks that no thread will release."""
    _making.acquire()
    binding = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(binding, "lib", None), "_lock", None)
    if lock is not None:
        lock.__enter__()
        _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)
    _making.release()


def _in_forked_child() -> None:
    """In the child: the parent's threads do not exist, nor do calls that those threads had not finished."""
    global _forked, _barred
    _forked = True
    _barred = frozenset((*(_barred or ()), *loaded_openmp()))
    for table in _tables:
        table.busy = 0
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
