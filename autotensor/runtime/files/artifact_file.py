"""`.atm` files: artifacts in a sealed container of JSON and parts. Reading a file executes nothing in it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError, AutotensorError
from autotensor.base.target import Target
from autotensor.runtime.files.artifact import ArgSpec, Array, Artifact
from autotensor.runtime.files.artifact_binding import check_bound
from autotensor.runtime.files.container import Buffer, container_bytes, read_container, write_container
from autotensor.runtime.files.container import give_back as give_back_pages
from autotensor.runtime.files.manifest import check_head, check_meta
from autotensor.runtime.files.object_cache import object_key

# 2: code takes parts of heavy regions from its context (work_sharing.py); code of format 1 does not
# 3: a file holds several artifacts, each as in format 2
# 4: a file holds one or several artifacts; texts are compressed
FORMAT = 4
_PACKED = ".z"  # suffix of a compressed part's name
_MOST_TEXT = 64 << 20  # longest text in bytes, so that a small part cannot unpack to fill the memory


_WRITERS = {  # suffixes of files that other functions write → how
    **dict.fromkeys((".o", ".a", ".so", ".dll", ".c", ".h"), 'Make a C library by at.write_c(f, "folder").'),
    **dict.fromkeys((".onnx", ".pt", ".pt2", ".pth", ".npz"), "Give the file the suffix .atm."),
    **dict.fromkeys((".ll", ".s", ".asm"), 'Write the text f.source("llvm") or f.source("asm").'),
}


def save(path: str | Path, artifact: Artifact) -> None:
    """Write `artifact` to an `.atm` file, atomically. Raises ArtifactError for a suffix of object files,
    libraries and their sources."""
    _write(Path(path), _alone(artifact))


def _write(path: Path, parts: tuple[dict[str, Any], Mapping[str, Buffer]]) -> None:
    if (fix := _WRITERS.get(path.suffix)) is not None:
        raise ArtifactError(f"{path}: save writes .atm files.", fix=fix)
    write_container(path, *parts)


def load(path: str | Path) -> Artifact:
    """The artifact in an `.atm` file. Its values are read-only maps of the file.

    Raises ArtifactError for everything except an intact file of a known format, and for a file with several
    artifacts (use `load_all`). Nothing is executed.
    """
    found = load_all(path)
    if len(found) != 1:
        raise ArtifactError(
            f"{path} holds {len(found)} compiled functions.",
            fix="autotensor.load reads them; here it takes a file of one, of one processor and shape.",
        )
    return found[0]


def save_all(path: str | Path, artifacts: Sequence[Artifact]) -> None:
    """Writes several artifacts to one `.atm` file, atomically. Equal parts (weights, say) are stored once."""
    if len(artifacts) == 1:
        save(path, artifacts[0])
    else:
        _write(Path(path), _together(artifacts))


def to_bytes(artifacts: Sequence[Artifact]) -> bytes:
    """The contents of an `.atm` file that holds these artifacts."""
    if len(artifacts) == 1:
        return container_bytes(*_alone(artifacts[0]))
    return container_bytes(*_together(artifacts))


def _alone(artifact: Artifact) -> tuple[dict[str, Any], dict[str, Buffer]]:
    head, members = _small(*description(artifact))
    return {"format": FORMAT, **head}, members


def _together(artifacts: Sequence[Artifact]) -> tuple[dict[str, Any], dict[str, Buffer]]:
    heads, kept = [], dict[str, Buffer]()
    places: dict[bytes, str] = {}  # digest of a part → name of the part in the file
    for n, artifact in enumerate(artifacts):
        head, members = _small(*description(artifact))
        names = {}
        for member, data in members.items():
            names[member] = places.setdefault(hashlib.sha256(data).digest(), f"v{n}_{member}")
            kept.setdefault(names[member], data)
        heads.append(_renamed(head, names))
    return {"format": FORMAT, "variants": heads}, kept


def load_all(path: str | Path, data: bytes | None = None) -> tuple[Artifact, ...]:
    """The artifacts in an `.atm` file, in order. Most files hold one. Raises ArtifactError as `load` does.

    data: the file's contents, if there is no file. `path` is then only a name for messages.
    """
    return load_known(path, data)[1]


def load_known(path: str | Path, data: bytes | None = None) -> tuple[str, tuple[Artifact, ...]]:
    """A hash of everything in the file, and the artifacts as from `load_all`."""
    path = Path(path)
    head, members = read_container(path, FORMAT, data)
    try:
        heads = head.get("variants", [head])
        found = tuple(restored(h, members) for h in heads)
        if not found:
            raise ValueError("it holds none")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, AutotensorError) as error:
        # The seal is right, so the file is unchanged since it was written: by another program, by a version
        # that broke the format, or by somebody who lies.
        why = str(error).rstrip(".") or type(error).__name__
        why = f"it lacks {why}" if isinstance(error, KeyError) else why
        raise ArtifactError(f"{path} does not describe a compiled function: {why}.") from error
    return object_key(json.dumps(head, sort_keys=True)), found  # `head` contains the hashes of all parts


def give_back(found: Iterable[Artifact]) -> None:
    """Gives back the memory that was used to read a file's values for hashing or preparing."""
    give_back_pages(_owner(v) for artifact in found for v in artifact.values.values())


def _owner(value: Array) -> Any:
    """The object that owns an array's memory."""
    base: Any = value
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def description(artifact: Artifact) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """An artifact as JSON, and the parts that the JSON names."""
    values = {name: np.ascontiguousarray(v) if v.ndim else v for name, v in artifact.values.items()}
    objects = {f"objects/{k}.o": data for k, data in enumerate(artifact.objects)}
    texts = {f"texts/{k}.txt": kind for k, kind in enumerate(sorted(artifact.texts))}
    arrays = {f"values/{k}.bin": name for k, name in enumerate(sorted(values))}
    head = {
        "name": artifact.name,
        "target": asdict(artifact.target),
        "entry": artifact.entry,
        "prepare": artifact.prepare,
        "args": [asdict(a) for a in artifact.args],
        "needs": list(artifact.needs),
        "objects": list(objects),
        "texts": {kind: member for member, kind in texts.items()},
        "values": {name: member for member, name in arrays.items()},
        "meta": dict(artifact.meta),
    }
    members: dict[str, Buffer] = {
        **objects,
        **{member: artifact.texts[kind].encode() for member, kind in texts.items()},
        **{member: _bytes_of(values[name]) for member, name in arrays.items()},
    }
    return head, members


def _small(
    head: Mapping[str, Any], members: Mapping[str, Buffer]
) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """A description with compressed texts: they shrink to a fifth, and small models are half text."""
    texts = set(head["texts"].values())
    names = {m: m + _PACKED if m in texts else m for m in members}
    packed = {names[m]: zlib.compress(data) if m in texts else data for m, data in members.items()}
    return _renamed(head, names), packed


def _text(member: str, data: memoryview) -> str:
    """The text of a member. Raises ValueError if the bytes are not text, or if the text is very long."""
    if not member.endswith(_PACKED):
        return str(data, "utf-8")
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, _MOST_TEXT)
    except zlib.error as error:
        raise ValueError(f"text {member!r} cannot be unpacked") from error
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError(f"text {member!r} does not end where it should")
    return plain.decode()


def _renamed(head: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The description, with other names for its parts."""
    return {
        **head,
        "objects": [names[m] for m in head["objects"]],
        "texts": {kind: names[m] for kind, m in head["texts"].items()},
        "values": {name: names[m] for name, m in head["values"].items()},
    }


def restored(head: Mapping[str, Any], members: Mapping[str, memoryview]) -> Artifact:
    """The artifact of a description. Raises an error of any kind for a description that is damaged or visibly
    false."""
    check_head(head)
    args = tuple(ArgSpec(**{**a, "shape": tuple(a["shape"])}) for a in head["args"])
    specs = {a.name: a for a in args}
    found = Artifact(
        name=head["name"],
        target=Target.of(head["target"]),
        entry=head["entry"],
        prepare=head["prepare"],
        args=args,
        objects=tuple(bytes(members[m]) for m in head["objects"]),
        needs=tuple(head["needs"]),
        texts={kind: _text(m, members[m]) for kind, m in head["texts"].items()},
        values={name: _array_of(specs[name], members[m]) for name, m in head["values"].items()},
        meta=head["meta"],
    )
    check_meta(found)
    check_bound(found)
    return found


def _bytes_of(value: Array) -> Buffer:
    """The bytes of a row-major array, without a copy."""
    return value.reshape(-1).view(np.uint8).data if value.size else b""


def _array_of(spec: ArgSpec, data: memoryview) -> Array:
    """A read-only array over the bytes of a member. Raises ValueError if the number of bytes is wrong."""
    if len(data) != spec.bytes:
        raise ValueError(f"value of {spec} has {len(data)} bytes")
    return np.frombuffer(data, dtype=np.uint8).view(dtype_of(spec.dtype).numpy).reshape(spec.shape)
