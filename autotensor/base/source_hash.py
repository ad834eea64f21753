"""A hash of the source of the running code, for files that are kept between runs and must not outlive a
change.

    source_digest((folder, …)) ──▶ "3fa9…"

The hash is "" if there is no source to read.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=8)
def source_digest(folders: tuple[Path, ...]) -> str:
    """A hash of all Python files below the folders (or of given files), of their names and contents. They are
    read once per process. The result is "" if a folder has no files, because unknown versions must not look
    equal.

    Contents are hashed, not dates: 3 MB take 30 ms, and a copy may change the dates.
    """
    digest = hashlib.sha256()
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
        if not files:
            return ""
        for file in files:
            data = file.read_bytes()
            digest.update(f"{file.relative_to(folder.parent)} {len(data)}\n".encode() + data)
    return digest.hexdigest()
