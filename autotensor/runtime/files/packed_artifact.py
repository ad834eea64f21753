"""An artifact as one string of bytes, for the object cache: the contents of an `.atm` file, without the file.

    pack(artifact) ──▶ b"…"      unpack(b"…") ──▶ the artifact

For any other string of bytes, `unpack` returns None.
"""

from __future__ import annotations

import json
import zlib

from autotensor.base.errors import AutotensorError
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.artifact_file import description, restored

# compression: texts are nine tenths, and shrink to a fifth; with a higher level, packing is slower than
# reading
LEVEL = 1


def pack(artifact: Artifact) -> bytes:
    head, members = description(artifact)
    sizes = {name: len(data) for name, data in members.items()}
    first = json.dumps({"head": head, "sizes": sizes}, separators=(",", ":")).encode()
    parts = (len(first).to_bytes(8, "little"), first, *(bytes(data) for data in members.values()))
    return zlib.compress(b"".join(parts), LEVEL)


def unpack(data: bytes) -> Artifact | None:
    try:
        whole = memoryview(zlib.decompress(data))
        end = 8 + int.from_bytes(whole[:8], "little")
        found = json.loads(bytes(whole[8:end]))
        members = {}
        for name, size in found["sizes"].items():
            members[name] = whole[end : end + size]
            end += size
        return restored(found["head"], members) if end == len(whole) else None
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, AutotensorError):
        return None
