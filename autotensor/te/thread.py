"""Thread axes of a GPU, in TVM's spelling: `te.thread_axis("threadIdx.x")`, to be given to `s[C].bind`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import absent, takes_its_names
from autotensor.base.errors import ScheduleError

VTHREAD = "vthread"
BLOCK_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
ALL_AXES = (*BLOCK_AXES, *THREAD_AXES, VTHREAD)


@dataclass(frozen=True, slots=True)
class ThreadAxis:
    """One axis of the grid or of a block. Its extent is that of the loops bound to it."""

    name: str

    def __str__(self) -> str:
        return self.name

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("thread_axis", name, self, {"var": "leave it out; loops have the guards they need"})


@takes_its_names("te.thread_axis", {"name": "Leave it out: loops keep their names."})
def thread_axis(dom: object = None, tag: str = "") -> ThreadAxis:
    """The thread axis of that name; `te.thread_axis((0, 64), "threadIdx.x")` is accepted as in TVM.

    The extent is not needed, because the bound loop has one. Raises ScheduleError for an unknown name.
    """
    name = dom if isinstance(dom, str) else tag
    if name not in ALL_AXES:
        raise ScheduleError(f"thread axis {name!r} is unknown.", fix=f"Known: {', '.join(ALL_AXES)}.")
    return ThreadAxis(name)
