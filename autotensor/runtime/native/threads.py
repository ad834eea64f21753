"""Teams of threads, which run the `nthreads` copies of a kernel, and how Python starts them.

    launch(fn, args, nthreads) ──▶ native launch ──▶ region of the provider ──▶ fn(ctx, args, tid, team size)

Providers, the first that is there wins: the OpenMP runtime already in this process (its threads spin for
milliseconds after a call of torch, say, and a second team would compete with them: models alternating with
torch take 1.2 to 2.5 times as long), our own pool, the system's libgomp, that in xgboost's wheel, none
(serial). A region of two threads takes the pool 0.3 us and libgomp 0.6. Beside threads of others,
onnxruntime's or another process's, or after 20 ms without a call, libgomp's calls often wait for several
ticks of 4 ms; the pool (pool.py) goes on without the threads that do not come (benchmarks/steadiness.py). One
ctypes call per launch, without the GIL; each has its own context, so any number of Python threads may launch
at once. A team may be smaller than requested; kernels are right for any size.

After `fork` the threads of an OpenMP runtime or pool are gone, and libgomp would wait for them for ever. At
its first launch a forked child starts a pool of its own and rewrites its copies of the parent's tables, so
that modules loaded before the fork find it where they look, and call as fast as the parent's. An OpenMP
runtime that was loaded before the fork is not used in the child; one that it loads itself is.
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
_XGBOOST_FOLDERS = ("xgboost_cpu.libs", "xgboost.libs")  # of its wheels, for their libraries
_OPENMP_SYMBOLS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


_C_TYPES: dict[str, type[ctypes.c_void_p | ctypes.c_int32]] = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32}


class _Table(ctypes.Structure):
    """`PROVIDER` of launcher.py."""

    _fields_ = tuple((name, _C_TYPES[kind]) for name, kind in launcher.PROVIDER.type.items())


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """One way of running a team."""

    name: str  # one of PROVIDERS
    detail: str  # the library's path, the pool's size
    table: _Table
    keep: tuple[Any, ...]  # what the table points into
    # fn address, args address, nthreads, count; releases the GIL
    start: Callable[[int, int, int, int], None]

    def __str__(self) -> str:
        return f"{self.name} ({self.detail})" if self.detail else self.name


_providers: dict[str, Provider | None] = {}
_making = RLock()  # held while _providers changes
_chosen: Provider | None = None
_tables: list[_Table] = []  # of all providers that have threads, of before a fork, too
_forked = False  # since a fork no threads were started; the tables lead to none
_held: list[Any] = []  # locks, while this process forks
_barred: frozenset[str] | None = None  # paths of OpenMP runtimes that a parent may have used; None: no fork


def launch(fn: int, args: int, nthreads: int, count: int = 1, provider: Provider | None = None) -> None:
    """Run the native function at address `fn` in a team of up to `nthreads`, `count` times, one region after
    another.

    `args` is the address of its argument array; the caller keeps alive what that points to.
    """
    if provider is None or _forked:
        provider = provider_here(provider)
    provider.start(fn, args, nthreads, count)


def table_of(provider: Provider | None = None) -> int:
    """Address of a provider's table, None for the one in use; for native code that calls `launch` itself.

    It stays good in forked children, once `is_forked` is over there.
    """
    return ctypes.addressof(provider_here(provider).table)


def is_forked() -> bool:
    """Whether this process is a forked child that has no threads yet: its first launch is to go by Python."""
    return _forked


def provider_here(provider: Provider | None) -> Provider:
    """That provider, None for the one in use; it has threads in this process."""
    if _forked:
        _start_again()
    return provider or current()


def current() -> Provider:
    """The provider in use, chosen at the first call."""
    global _chosen
    if _forked:
        _start_again()
    chosen = _chosen  # once: another thread may forget it meanwhile
    if chosen is None:
        chosen = _chosen = choose()
    return chosen


def look_again() -> None:
    """Choose anew if our own pool is in use and an OpenMP runtime was loaded since, as torch does."""
    global _chosen
    chosen = _chosen
    if chosen is not None and chosen.name == "pool" and loaded_openmp():
        with _making:
            _providers.pop("openmp-loaded", None)
        _chosen = None


def choose(name: str | None = None) -> Provider:
    """The named provider, or the first of PROVIDERS that this process can have.

    Raises InputError if the name is unknown or the provider is not available here.
    """
    if name is None:
        return next(p for p in map(_provider, PROVIDERS) if p is not None)
    if name not in PROVIDERS:
        raise InputError(f"thread provider {name!r} is unknown.", fix=f"Known: {', '.join(PROVIDERS)}.")
    found = _provider(name)
    if found is None and _barred is not None and name.startswith("openmp"):
        found = _provider("pool")  # the named one would wait for threads of the parent
    if found is None:
        raise InputError(f"thread provider {name!r} is not available in this process.")
    return found


def available() -> tuple[str, ...]:
    """Names of the providers that this process can have; looking starts the pool."""
    return tuple(n for n in PROVIDERS if _provider(n) is not None)


def _provider(name: str) -> Provider | None:
    if _forked:
        _start_again()
    with _making:  # threads whose first calls come at once share one pool
        if name not in _providers:
            _providers[name] = _make(name)
        return _providers[name]


def _make(name: str) -> Provider | None:
    match name:
        case "openmp-loaded":
            return next((p for p in (_openmp(name, path) for path in loaded_openmp()) if p), None)
        case "openmp-system" | "openmp-xgboost" if _barred is not None:
            return None  # it may be among those of the parent
        case "openmp-system":
            return _openmp(name, "libgomp.so.1")
        case "openmp-xgboost":
            return next((p for p in (_openmp(name, path) for path in xgboost_openmp()) if p), None)
        case "pool":
            return _pool(_table("pool_region"))
        case _:
            return _around("serial", "", _table("serial_region"))


def loaded_openmp() -> list[str]:
    """Paths of OpenMP runtimes that this process has already loaded (Linux; elsewhere none is found).

    Not xgboost's: the cost model loads it, and runs it with one thread. Not those of before a fork.
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
    """Own workers behind that table, one fewer than the cores or the requested threads, because the caller
    works too."""
    wanted = min(max(default_threads(), os.cpu_count() or 1, 2) - 1, MOST_WORKERS)
    memory = ctypes.create_string_buffer(POOL.bytes + wanted * WORKER.bytes + 64)
    for shared in (memory, table):
        # Workers read it until the process ends, when the interpreter has long forgotten this module.
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
    """Gives a forked child its threads: a pool, to which all tables of before the fork lead from now on."""
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
        _forked = False  # last: until then others wait for the lock


def _before_fork() -> None:
    """Whoever makes a provider, or is inside LLVM, finishes first: a child must find neither half done, nor
    locks that no thread will release."""
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
    """The parent's threads do not exist here, nor do calls that other threads of it were in."""
    global _forked, _barred
    _forked = True
    _barred = frozenset((*(_barred or ()), *loaded_openmp()))
    for table in _tables:
        table.busy = 0
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
