"""The arguments of an entry, hashed into its symbol, so that a description with other arguments is detected.

    conv2d_run_6588b98fee5446fa29e8_abi_0f3c9a1be2d45678
                                        └── hash of roles, shapes and types of all arguments, in order, of the
                                            constants that are kept, and of the ranges of indices

An `.atm` file describes its arguments in JSON, next to the code that was compiled for them. Code that is
called with smaller arrays than it was compiled for writes into other memory. So the description and the
symbol are compared when a file is opened. This protects against mistakes, not against the author of a file,
because code can do anything (docs/security.md). Symbols of older versions have no such hash, and are
accepted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files.artifact import ArgSpec, Artifact

_BOUND = re.compile(r".*_abi_([0-9a-f]{16})")


def bound(
    symbol: str,
    part: str,
    args: Sequence[ArgSpec],
    constants: Collection[str],
    ranges: Mapping[str, Sequence[int]],
) -> str:
    """The symbol of an entry, with a hash of its arguments at the end.

    part: "run" or "prepare". constants: names of the constants that are kept (Artifact.entry_constants).
    ranges: the ranges of arguments that hold indices, by name.
    """
    told = [
        part,
        [[a.role, list(a.shape), a.dtype, a.per_thread] for a in args],
        [n for n, a in enumerate(args) if a.role == "constant" and a.name in constants],
        [[n, *map(int, ranges[a.name])] for n, a in enumerate(args) if a.name in ranges],
    ]
    return f"{symbol}_abi_{hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]}"


def check_bound(artifact: Artifact) -> None:
    """Raises ArtifactError if an entry was compiled for other arguments than the artifact describes."""
    ranges = artifact.meta.get("index_ranges", {})
    for part, symbol in (("run", artifact.entry), ("prepare", artifact.prepare)):
        found = _BOUND.fullmatch(symbol or "")
        if found is None or symbol is None:
            continue
        stem = symbol[: -len("_abi_") - 16]
        if bound(stem, part, artifact.args, artifact.entry_constants(), ranges) != symbol:
            raise ArtifactError(
                f"{artifact.name}: its function {stem!r} was compiled for other arguments than it lists: "
                f"{', '.join(map(str, artifact.args))}"
            )


__all__ = ["bound", "check_bound"]
