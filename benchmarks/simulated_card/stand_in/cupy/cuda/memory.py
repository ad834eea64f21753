"""Errors of CuPy's memory pool."""

from __future__ import annotations


class OutOfMemoryError(MemoryError):
    """There is not enough memory."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")
