"""Names of failures, and short programs that show each failure again.

kind_of(error)  ▶ "too few registers"          repro("kernels", "matmul", …)  ▶ a program of ten lines at most
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autotensor.base.errors import AutotensorError, CodegenError

Array = np.ndarray

HANG, KILLED, TIME_LIMIT, NOT_RUN = "hang", "child killed", "time limit", "not run"
PATHS = ("benchmarks", "tests/kit", "tests", ".")  # from the repository's root
CARD = "card"  # the name of the stage that checks the card itself, and of its only item
WRONG, NAN, CAPABILITY, OTHER = "wrong number", "NaN", "another capability", "error"

# Words of an error's message → the failure's name. The first match counts.
_WORDS = (
    ("compiler missing", ("needs NVRTC",)),
    ("old driver", ("does not load what NVRTC",)),
    ("driver missing", ("finds no driver", "finds no NVIDIA card", "needs CuPy")),
    ("out of memory", ("bytes of memory left", "OutOfMemory", "cudaErrorMemoryAllocation")),
    ("too few registers", ("registers a thread", "registers in each", "OUT_OF_RESOURCES")),
    ("compile error", ("refuses the kernel source", "NVRTC refused")),
    (
        "lost device",
        (
            "DevicesUnavailable",
            "DEVICE_UNAVAILABLE",
            "ECCUncorrectable",
            "cudaErrorUnknown",
            "CUDA_ERROR_UNKNOWN",
        ),
    ),
    ("launch error", ("the launch of a kernel failed", "cannot be set up", "cannot be launched")),
    ("kernel failed", ("a kernel failed", "copy from the card, failed", "copy on the card failed")),
)


class Wrong(Exception):
    """An item computed a wrong result."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


def compare(found: Array, wanted: Array, near: float) -> float:
    """The largest difference, as a share of the largest expected number. Raises Wrong if it is above
    `near`."""
    if found.shape != wanted.shape:
        raise Wrong(WRONG, f"shape {found.shape}, wanted {wanted.shape}")
    if not wanted.size:
        return 0.0
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    odd = np.isnan(x) & ~np.isnan(y)
    if odd.any():
        raise Wrong(NAN, f"{int(odd.sum())} of {odd.size} are NaN, the first at {_first(odd)}")
    scale = max(1.0, float(np.max(np.abs(y), initial=0.0, where=np.isfinite(y))))
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(x - y) <= near * scale + near * np.abs(y)) | (x == y) | (np.isnan(x) & np.isnan(y)))
        worst = float(np.nanmax(np.where(np.isfinite(x - y), np.abs(x - y), 0.0))) / scale
    if bad.any():
        at = _first(bad)
        raise Wrong(
            WRONG, f"{int(bad.sum())} of {bad.size} differ, the first at {at}: {x[at]:g}, wanted {y[at]:g}"
        )
    return worst


def _first(where: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(where)), where.shape))


def kind_of(error: BaseException) -> str:
    """The name of a failure."""
    if isinstance(error, Wrong):
        return error.kind
    words = f"{type(error).__name__}: {error}"
    for kind, parts in _WORDS:
        if any(p in words for p in parts):
            return kind
    if isinstance(error, CodegenError):
        return "compile error"
    return "refused" if isinstance(error, AutotensorError) else OTHER


def repro(
    stage: str, item: str, setting: object, planted: str | None = None, limit_s: float | None = None
) -> str:
    """A program that runs only this item, without child processes. It can be sent to the developers, and
    debugged.

    setting: a stages.Setting. planted: None on a card; in a rehearsal the planted faults, "" for none.
    limit_s: for an item that did not end, the seconds after which the program prints its stack and ends.
    """
    stand_in = [] if planted is None else ["benchmarks/simulated_card/stand_in"]
    faults = f", STAND_IN_FAULTS={planted!r}" if planted else ""
    limit = [] if limit_s is None else [f"faulthandler.dump_traceback_later({limit_s:g}, exit=True)"]
    return "\n".join(
        [
            "# from the repository's root: python repro.py",
            "import faulthandler, os, sys",
            f"paths = [os.path.abspath(p) for p in {[*stand_in, *PATHS]!r}]",
            "sys.path[:0] = paths",
            f"os.environ.update(PYTHONPATH=os.pathsep.join(paths), CARD_ITEM={f'{stage}/{item}'!r}{faults})",
            "from card.stages import STAGES, Setting",
            *limit,
            f"print(STAGES[{stage!r}].run({setting!r}, {item!r}))",
        ]
    )


def repro_of(entry: Mapping[str, Any], setting: object, planted: str | None) -> str:
    """The program for an entry of the journal. For an item that did not run because there is no card, it is
    the program of stage `card`."""
    stage, item = (CARD, CARD) if entry["kind"] == NOT_RUN else (entry["stage"], entry["item"])
    return repro(stage, item, setting, planted, entry.get("limit_s"))
