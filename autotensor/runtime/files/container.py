"""The container format of `.atm` files: an uncompressed zip. A hash covers every byte, and members can be
memory-mapped.

    ┌ header, padding ┐┌ manifest.json ┐┌ header ┐┌ objects/0.o ┐ … ┌ central directory ┐┌ end ┐┌ comment ┐
      sealed            sealed           sealed    sha256 in the      sealed               sealed   the seal
                                                   manifest

Each member's data begins at a multiple of 64 bytes, so that mapped arrays are aligned for any vector
instruction. The manifest holds the size and the sha256 of all other members. The seal, a sha256 in the zip's
comment, covers everything that is not such a member: headers, padding, manifest and directory. So checking
reads each byte exactly once and leaves none out. `unzip -l` can list the file. Start reading at
`write_container` and `read_container`.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files.atomic_write import replacing

ALIGNMENT = 64
MANIFEST = "manifest.json"
_SEAL = b"autotensor-sha256:"
_COMMENT_BYTES = len(_SEAL) + 64
_NAME = re.compile(r"[a-z0-9_]+(/[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*)?(\.[a-z]+)?")
_LOCAL_HEADER_BYTES = 30
_HEADER = b"PK\3\4"  # the first bytes of a file
_END_BYTES = 22  # size of the record between directory and comment
_ALIGNMENT_EXTRA = 0xD935  # the type of extra field that Android's zipalign introduced for this purpose
_ZIP64_EXTRA_BYTES = 20  # zipfile adds this many bytes to the local header of a member near or above 2 GiB

Buffer = bytes | memoryview
Image = bytes | mmap.mmap  # the contents of a whole file


def write_container(path: Path, head: Mapping[str, Any], members: Mapping[str, Buffer]) -> None:
    """Writes `head` (JSON-able) and `members` to `path`, atomically. Raises ArtifactError if that fails."""
    manifest = _described(head, members, path.name)
    try:
        with replacing(path) as file:
            _write(file, manifest, members)
            file.flush()
            # the map is closed with its last view
            image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            _sealed(file, image, set(members), path)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}.") from error


def container_bytes(head: Mapping[str, Any], members: Mapping[str, Buffer]) -> bytes:
    """The bytes that `write_container` writes to a file."""
    file = io.BytesIO()
    _write(file, _described(head, members, "it"), members)
    _sealed(file, file.getvalue(), set(members), Path("it"))
    return file.getvalue()


def _described(head: Mapping[str, Any], members: Mapping[str, Buffer], name: str) -> bytes:
    """The manifest, as bytes."""
    bad = [name for name in members if not _NAME.fullmatch(name) or name == MANIFEST]
    if bad:
        raise ArtifactError(f"save: {bad[0]!r} cannot be the name of a part of an .atm file.")
    table = {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in members.items()}
    try:
        return json.dumps({**head, "members": table}, indent=1, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"save: the description of {name} is not plain JSON: {error}.") from error


def _write(file: BinaryIO, manifest: bytes, members: Mapping[str, Buffer]) -> None:
    """Writes everything except the seal."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = _SEAL + b"0" * 64
        for name, data in {MANIFEST: manifest, **members}.items():
            archive.writestr(_aligned_entry(file, name, len(data)), data)


def _sealed(file: BinaryIO, image: Image, members: set[str], path: Path) -> None:
    """Appends the seal to the file; `image` holds the file's contents."""
    seal = _seal(memoryview(image), _spans(image, path), members)
    file.seek(-64, os.SEEK_END)
    file.write(seal)


def read_container(
    path: Path, newest_format: int, contents: bytes | None = None
) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The manifest and the members (read-only views of the mapped file), after a check of every byte.

    contents: the file's contents, for example from `container_bytes`. `path` is then only a name for
    messages.
    Raises ArtifactError if the file is unreadable, not a container, of a newer format, or changed since it
    was written.
    """
    image: Image = _map(path) if contents is None else contents
    spans = _spans(image, path)
    view = memoryview(image)
    manifest = _manifest(view, spans, path)
    version = manifest.get("format")
    if isinstance(version, int) and version > newest_format:
        raise ArtifactError(
            f"{path} has format {version}, made by a newer autotensor; this one reads up to {newest_format}.",
            fix="Upgrade autotensor.",
        )
    if type(version) is not int or version < 1:
        raise _damaged(path, f"its format is {str(version)[:20]!r}")
    table = manifest.get("members")
    if not isinstance(table, dict) or {MANIFEST, *table} != set(spans):
        raise _damaged(path, "its list of parts does not match its contents")
    comment = bytes(view[-_COMMENT_BYTES:])
    if comment[: len(_SEAL)] != _SEAL or comment[len(_SEAL) :] != _seal(view, spans, set(table)):
        raise _damaged(path, "its seal does not match")
    members = {name: view[start:stop] for name, (start, stop) in spans.items() if name != MANIFEST}
    for name, data in members.items():
        # The seal covers the manifest, so this table has the form that `write_container` gave it.
        if table[name] != {"bytes": len(data), "sha256": _sha256(data)}:
            raise _damaged(path, f"the hash of {name} does not match")
    return manifest, members


def give_back(parts: Iterable[Any]) -> None:
    """Gives the pages of mapped members back to the system. The system's cache holds their contents, so they
    can be read again."""
    maps = {id(m): m for p in parts if isinstance(p, memoryview) and isinstance(m := p.obj, mmap.mmap)}
    for image in maps.values():
        if hasattr(mmap, "MADV_DONTNEED"):
            image.madvise(mmap.MADV_DONTNEED)


def _map(path: Path) -> mmap.mmap:
    """The file as read-only memory. It stays mapped as long as a view of it exists."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ArtifactError(f"{path} is empty.")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}.") from error
    except ValueError as error:  # a path with a NUL character, a pipe
        raise ArtifactError(f"cannot read {path}: {error}.") from error


def _foreign(path: Path) -> ArtifactError:
    return ArtifactError(
        f"{path} is not an autotensor file: it has no {MANIFEST}.",
        fix="ONNX files are read by at.from_onnx, PyTorch modules by at.from_torch.",
    )


def _manifest(view: memoryview, spans: Mapping[str, tuple[int, int]], path: Path) -> dict[str, Any]:
    if MANIFEST not in spans:
        raise _foreign(path)
    start, stop = spans[MANIFEST]
    try:
        manifest = json.loads(bytes(view[start:stop]))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its manifest is not JSON") from error
    if not isinstance(manifest, dict):
        raise _damaged(path, "its manifest is not an object")
    return manifest


def _spans(image: Image, path: Path) -> dict[str, tuple[int, int]]:
    """The position of each member's data: name → (first byte, byte after the last). The positions are
    disjoint and inside the file."""
    spans: dict[str, tuple[int, int]] = {}
    try:
        with zipfile.ZipFile(_Reader(image)) as archive:
            for entry in archive.infolist():
                if entry.filename in spans or not _NAME.fullmatch(entry.filename):
                    if MANIFEST not in archive.namelist():  # another zip, for example from torch.save
                        raise _foreign(path)
                    raise _damaged(path, f"it has an unexpected part {entry.filename!r}")
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 or entry.volume:
                    raise _damaged(path, f"part {entry.filename!r} is not stored plainly")
                names, extra = struct.unpack_from("<HH", image, entry.header_offset + 26)
                start = entry.header_offset + _LOCAL_HEADER_BYTES + names + extra
                spans[entry.filename] = (start, start + entry.file_size)
            comment, count = len(archive.comment), min(len(archive.infolist()), 0xFFFF)
            told = struct.unpack_from("<HHHHIIH", image, len(image) - comment - _END_BYTES + 4)
            if spans and (image[:4] != _HEADER or told[:4] != (0, 0, count, count) or told[6] != comment):
                raise ValueError("its directory does not match its contents")
    except ArtifactError:
        raise
    # for damaged directories, zipfile raises struct, index, unicode and value errors
    except Exception as error:
        why = "" if isinstance(error, zipfile.BadZipFile) else f" ({error})"
        raise ArtifactError(f"{path} is not an .atm file, or is truncated{why}.") from error
    end = 0
    for start, stop in sorted(spans.values()):
        if start < end or stop > len(image):
            raise _damaged(path, "its parts overlap or reach beyond its end")
        end = stop
    return spans


class _Reader:
    """The few file methods that zipfile needs, over a map. Closing the reader leaves the map open."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._image)}[whence]
        if base + offset < 0:
            raise OSError("seek before the start")
        self._at = base + offset
        return self._at

    def read(self, count: int = -1) -> bytes:
        stop = len(self._image) if count < 0 else self._at + count
        data = self._image[self._at : stop]
        self._at += len(data)
        return data


def _seal(view: memoryview, spans: Mapping[str, tuple[int, int]], hashed_elsewhere: set[str]) -> bytes:
    """Hex sha256 of all bytes except the digest in the comment and the data of the members named."""
    digest = hashlib.sha256()
    at = 0
    for start, stop in sorted(spans[name] for name in hashed_elsewhere):
        digest.update(view[at:start])
        at = stop
    digest.update(view[at : len(view) - 64])
    return digest.hexdigest().encode()


def _aligned_entry(file: BinaryIO, name: str, size: int) -> zipfile.ZipInfo:
    """An entry for `name`. Its padding makes the data after the header begin at a multiple of 64."""
    entry = zipfile.ZipInfo(name)  # its date is 1980, so that equal artifacts give equal files
    entry.external_attr = 0o644 << 16
    large = size * 1.05 > zipfile.ZIP64_LIMIT  # zipfile itself makes the same test
    fixed = _LOCAL_HEADER_BYTES + len(name.encode()) + (_ZIP64_EXTRA_BYTES if large else 0) + 6
    padding = -(file.tell() + fixed) % ALIGNMENT
    entry.extra = struct.pack("<HHH", _ALIGNMENT_EXTRA, 2 + padding, ALIGNMENT) + bytes(padding)
    return entry


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


def _damaged(path: Path, why: str) -> ArtifactError:
    return ArtifactError(
        f"{path} is damaged: {why}.", fix="Build or download it again; no part of it was used."
    )
