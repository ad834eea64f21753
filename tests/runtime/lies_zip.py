"""Lies in the zip itself, which change bytes of its parts, entries, headers and end. They are added to
`LIES`."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable

from lies import LIES, SEAL, Members, lie, rezipped, right, sealed

from autotensor.runtime.files.container import MANIFEST


def zipped(name: str, change: Callable[[Members], object]) -> None:
    def make() -> bytes:
        with zipfile.ZipFile(io.BytesIO(right("model"))) as archive:
            parts = {i.filename: archive.read(i) for i in archive.infolist()}
        change(parts)
        return rezipped(parts)

    lie(name)(make)


zipped("a part more", lambda p: p.update({"objects/98.o": b"x"}))
zipped("a part less", lambda p: p.pop(next(n for n in p if n.startswith("texts/"))))
zipped("no manifest", lambda p: p.pop(MANIFEST))
zipped("nothing but a manifest", lambda p: [p.pop(n) for n in list(p) if n != MANIFEST])
zipped("no parts at all", lambda p: p.clear())
for bad in (
    "/etc/passwd",
    "../up.o",
    "objects/../../up.o",
    "objects/",
    "C:\\up.o",
    "objects\\0.o",
    "",
    "a\0b",
    "ä.o",
):
    zipped(f"a part named {bad!r}", lambda p, bad=bad: p.update({bad: b"x"}))


@lie("compressed parts")
def _() -> bytes:
    with zipfile.ZipFile(io.BytesIO(right("model"))) as archive:
        parts = {i.filename: archive.read(i) for i in archive.infolist()}
    return rezipped(parts, compression=zipfile.ZIP_DEFLATED)


@lie("a part of ten gigabytes in ten megabytes")
def _() -> bytes:
    with zipfile.ZipFile(io.BytesIO(right("model"))) as archive:
        parts = {i.filename: archive.read(i) for i in archive.infolist()}
    return rezipped({**parts, "texts/9.txt": bytes(10 << 20)}, compression=zipfile.ZIP_DEFLATED)


@lie("a part twice")
def _() -> bytes:
    file = io.BytesIO(right("model"))
    with zipfile.ZipFile(file, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the duplicate, which is meant
        archive.writestr(zipfile.ZipInfo(MANIFEST), b"{}")
        archive.comment = SEAL + b"0" * 64
    return sealed(file.getvalue())


def entries(data: bytes) -> list[int]:
    """Where the entries of the central directory begin."""
    count, _, start = struct.unpack_from("<HII", data, data.rindex(b"PK\5\6") + 10)
    found = []
    for _ in range(count):
        found.append(start)
        name, extra, comment = struct.unpack_from("<HHH", data, start + 28)
        start += 46 + name + extra + comment
    return found


def directory(name: str, offset: int, form: str, value: Callable[[int], int], which: int = 1) -> None:
    """A lie in a field of an entry of the directory."""

    def make() -> bytes:
        data = bytearray(right("model"))
        place = entries(bytes(data))[which] + offset
        struct.pack_into(form, data, place, value(struct.unpack_from(form, data, place)[0]))
        return sealed(bytes(data))

    lie(name)(make)


directory("a part that is longer than the file", 24, "<I", lambda n: 1 << 30)
directory("a part that reaches into the next", 24, "<I", lambda n: n + 200)
directory("a part that is shorter", 24, "<I", lambda n: n - 1)
directory("a part of no bytes", 24, "<I", lambda n: 0)
directory("a part of zip64's size without zip64", 24, "<I", lambda n: 0xFFFFFFFF)
directory("a part that begins behind the file", 42, "<I", lambda n: 1 << 30)
directory("a part that begins in another", 42, "<I", lambda n: n + 7)
directory("a part that begins where the first does", 42, "<I", lambda n: 0)
directory("an encrypted part", 8, "<H", lambda n: n | 1)
directory("a part compressed in no known way", 10, "<H", lambda n: 99)
directory("a part whose name ends elsewhere", 28, "<H", lambda n: n + 1000)
directory("a part with a comment that is not there", 32, "<H", lambda n: 0xFFFF)
directory("a part on another disk", 34, "<H", lambda n: 7)


def header(name: str, offset: int, value: int) -> None:
    """A lie in the header before a part."""

    def make() -> bytes:
        data = bytearray(right("model"))
        start = struct.unpack_from("<I", data, entries(bytes(data))[1] + 42)[0]
        struct.pack_into("<H", data, start + offset, value)
        return sealed(bytes(data))

    lie(name)(make)


header("a header whose name is too long", 26, 0xFFFF)
header("a header whose extra is too long", 28, 0xFFFF)


def end(name: str, offset: int, form: str, value: int) -> None:
    """A lie at the end of the directory."""

    def make() -> bytes:
        data = bytearray(right("model"))
        struct.pack_into(form, data, data.rindex(b"PK\5\6") + offset, value)
        return sealed(bytes(data))

    lie(name)(make)


end("a directory of one entry", 10, "<H", 1)
end("a directory of no bytes", 12, "<I", 0)
end("a directory behind the file", 16, "<I", 1 << 30)
end("a directory on another disk", 4, "<H", 3)
end("a comment that is shorter than it says", 20, "<H", 200)


@lie("bytes before the file")
def _() -> bytes:
    return sealed(b"#!/bin/sh\n" + right("model"))


@lie("bytes behind the seal")
def _() -> bytes:
    return right("model") + b"\0"


@lie("another file's seal")
def _() -> bytes:
    return right("model")[:-64] + right("free")[-64:]


@lie("no seal")
def _() -> bytes:
    data = right("model")
    at_comment = data.rindex(b"PK\5\6") + 20
    return data[:at_comment] + b"\0\0"


@lie("the end of a zip alone")
def _() -> bytes:
    return b"PK\5\6" + bytes(18)


__all__ = ["LIES"]
