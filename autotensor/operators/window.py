"""Windows of pools and convolutions: the elements of one spatial axis that each window covers.

    window i begins at i*stride - before and covers `kernel` elements, every dilation-th one
    read = reader(x, 0, "nhwc", windows)            x with zeros around it, if something is read there
    read({"n": n, "h": i, …}, ks)                   x[n, i*stride + k*dilation, …], and the indices read

The rules for ceil_mode and count_include_pad are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotensor import te
from autotensor.operators.operator_helpers import by_layout, padded, paddings, per_axis, position
from autotensor.te import Tensor

Ints = int | tuple[int, ...]
Axes = Sequence[str]  # names of a tensor's axes in order: "n" and "c"; every other axis is spatial
# axis → index of the result, k of each spatial axis (None for 0) ──▶ indices with padding, and the element
Reader = Callable[[Mapping[str, Any], Sequence[Any]], tuple[list[Any], Any]]


@dataclass(frozen=True, slots=True)
class Window:
    """The windows along one spatial axis."""

    extent: int  # extent of x
    kernel: int
    stride: int
    dilation: int
    before: int  # padding
    after: int
    ceil: bool  # whether a last window may extend beyond the padding, if it begins inside x

    @property
    def reach(self) -> int:
        """The number of elements from a window's first to its last."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def span(self) -> int:
        """How far a window can move; negative if no window fits."""
        return self.extent + self.before + self.after - self.reach

    @property
    def out(self) -> int:
        """The number of windows; 0 or less if no window fits."""
        count = (-(-self.span // self.stride) if self.ceil else self.span // self.stride) + 1
        starts_behind = (count - 1) * self.stride >= self.extent + self.before
        return count - 1 if self.ceil and starts_behind else count

    @property
    def around(self) -> tuple[int, int]:
        """The number of elements needed before and after x, also for windows beyond the padding."""
        read = (self.out - 1) * self.stride + self.reach - self.before
        return self.before, max(self.after, read - self.extent)

    @property
    def is_whole(self) -> bool:
        """Whether every window lies inside x."""
        return self.around == (0, 0)

    def counted(self, include_pad: bool) -> tuple[int, int]:
        """The elements that count in an average, from and to; index 0 is the first element of the padding."""
        if include_pad:
            return 0, self.before + self.extent + self.after
        return self.before, self.before + self.extent

    def inside(self, i: int, include_pad: bool) -> int:
        """How many elements of window i count."""
        low, high = self.counted(include_pad)
        return sum(low <= i * self.stride + k * self.dilation < high for k in range(self.kernel))

    def places(self, i: int) -> list[int]:
        """The elements of x that window i covers."""
        found = (i * self.stride + k * self.dilation - self.before for k in range(self.kernel))
        return [p for p in found if 0 <= p < self.extent]


def windows_of(
    op: str, extents: Sequence[int], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> tuple[Window, ...]:
    """The windows along each spatial axis; a single number is for all axes."""
    rank = len(extents)
    sizes = zip(
        extents,
        per_axis(op, "kernel", kernel, rank),
        per_axis(op, "stride", stride, rank),
        per_axis(op, "dilation", dilation, rank),
        paddings(op, padding, rank),
        strict=True,
    )
    return tuple(Window(n, k, s, d, before, after, ceil) for n, k, s, d, (before, after) in sizes)


def spatial_of(axes: Axes) -> list[str]:
    return [a for a in axes if a not in ("n", "c")]


def reader(x: Tensor, fill: Any, axes: Axes, windows: Sequence[Window]) -> Reader:
    """A function that reads element k of a window of x; elements outside x are `fill`."""
    spatial = spatial_of(axes)
    source = padded(x, by_layout(axes, spatial, ((0, 0),) * 2, [w.around for w in windows]), fill, axes)

    def read(at: Mapping[str, Any], ks: Sequence[Any]) -> tuple[list[Any], Any]:
        lines = zip(spatial, windows, ks, strict=True)
        places = [position(at[a], w.stride, k, w.dilation) for a, w, k in lines]
        return places, source[by_layout(axes, spatial, (at["n"], at["c"]), places)]

    return read


def taps(axes: Axes, windows: Sequence[Window]) -> list[Any]:
    """For each spatial axis, a reduce axis over a window's elements; None if there is only one element."""
    lines = zip(spatial_of(axes), windows, strict=True)
    return [te.reduce_axis(w.kernel, f"k{a}") if w.kernel > 1 else None for a, w in lines]
