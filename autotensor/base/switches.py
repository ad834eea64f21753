"""Every environment variable that autotensor reads, typed and documented, in one table.

    switches.debug()                       value of AUTOTENSOR_DEBUG now
    with switches.override(debug=3): …     another value inside the block, in this thread or task only

The environment is read at each call, so that a test or a notebook may change it; a value that makes no sense
is an error that names the variable, not a silent default.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from autotensor.base.errors import InputError

T = TypeVar("T")

_overrides: ContextVar[Mapping[str, Any]] = ContextVar("autotensor_switches", default=MappingProxyType({}))
_UNSET = object()


@dataclass(frozen=True, slots=True)
class Switch(Generic[T]):
    """One variable. A call gives its value."""

    name: str  # as in `override(name=…)`; the variable is AUTOTENSOR_NAME
    default: T
    parse: Callable[[str], T]
    help: str

    @property
    def variable(self) -> str:
        return f"AUTOTENSOR_{self.name.upper()}"

    def __call__(self) -> T:
        value: Any = _overrides.get().get(self.name, _UNSET)
        if value is not _UNSET:
            return value  # type: ignore[no-any-return]
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise InputError(f"{self.variable}={text!r} cannot be used: {error}.", fix=self.help) from error


def _natural(text: str) -> int:
    number = int(text) if text.strip().isdigit() else -1
    if number < 0:
        raise ValueError("it must be a whole number, not negative")
    return number


def _positive(text: str) -> int:
    number = _natural(text)
    if number == 0:
        raise ValueError("it must be at least 1")
    return number


def _flag(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
    raise ValueError("it must be 0 or 1")


def _path(text: str) -> Path | None:
    return Path(text).expanduser()


debug = Switch(
    "debug",
    0,
    _natural,
    "Level of messages: 1 kernels and errors of the cache. Each further level adds one thing: 2 traces, "
    "3 loops, 4 source, 5 passes, 6 rules.",
)
dump: Switch[Path | None] = Switch(
    "dump", None, _path, "Directory that gets every stage of every kernel as numbered files."
)
db: Switch[str] = Switch("db", "", str, "Tuning log: a path or an SQLAlchemy URL.")
cache_dir: Switch[Path | None] = Switch(
    "cache_dir", None, _path, "Directory of compiled objects; else the user's cache folder."
)
cache_bytes = Switch(
    "cache_bytes", 512 << 20, _natural, "Size in bytes that the cache may have; 0 turns it off."
)
prepared_bytes = Switch(
    "prepared_bytes",
    4 << 30,
    _natural,
    "Size in bytes that prepared weights of loaded files may have in the cache folder; 0 keeps none there.",
)
num_threads = Switch("num_threads", 0, _positive, "Threads of a kernel; wins over OMP_NUM_THREADS.")
provider: Switch[str] = Switch(
    "provider", "", str, "Thread provider: openmp-loaded, pool, openmp-system, openmp-xgboost, serial."
)
opencl: Switch[str] = Switch("opencl", "", str, "Part of the name of the OpenCL platform to use.")
verify = Switch("verify", False, _flag, "1 runs the IR verifier after every pass.")
no_shipped = Switch(
    "no_shipped", False, _flag, "1 ignores the tuned schedules and the cost model that come with autotensor."
)
strict = Switch(
    "strict",
    False,
    _flag,
    "1 raises what a rule raises; else a rule that fails is left out with a warning, and the model runs.",
)
mnist: Switch[Path | None] = Switch(
    "mnist", None, _path, "Directory of MNIST's four files, for autotensor.flow.datasets."
)

_ALL = (
    debug,
    dump,
    db,
    cache_dir,
    cache_bytes,
    prepared_bytes,
    num_threads,
    provider,
    opencl,
    verify,
    no_shipped,
    strict,
    mnist,
)
SWITCHES: Mapping[str, Switch[Any]] = MappingProxyType({s.name: s for s in _ALL})


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Other values inside the block: `override(debug=3)`. Raises InputError for a name that is not a
    switch."""
    for name in values:
        if name not in SWITCHES:
            raise InputError(f"switch {name!r} is unknown.", fix=f"Known: {', '.join(SWITCHES)}.")
    token = _overrides.set(MappingProxyType({**_overrides.get(), **values}))
    try:
        yield
    finally:
        _overrides.reset(token)
