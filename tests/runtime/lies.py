"""Sealed `.atm` files with false descriptions ("lies"): each is a right file with one change, sealed again.

`LIES` is the table: the name of a lie and the function that makes its file. The manifest is changed before
sealing, so that all hashes are right. The zip itself is changed as bytes, and sealed again if the seal can
still be found.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autotensor as at
from autotensor import te
from autotensor.base.dtype import dtype_of
from autotensor.compiler import compile_trace
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.container import MANIFEST, container_bytes, read_container
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG

SEAL = b"autotensor-sha256:"
Members = dict[str, bytes]
Head = dict[str, Any]
Lie = Callable[[], bytes]
LIES: dict[str, Lie] = {}


# -- right files -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Right:
    head: Head
    members: Members

    def parts(self) -> tuple[Head, Members]:
        return copy.deepcopy(self.head), dict(self.members)


RIGHT: dict[str, Right] = {}


def make_right() -> None:
    """A kernel whose constant is free, one whose constant is bound, one that reads indices, and a model."""
    a, w = te.placeholder((20, 48), name="A"), te.placeholder((48, 40), name="W", constant=True)
    k = te.reduce_axis(48, name="k")
    c = te.compute((20, 40), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    free = at.build([a, w, c], name="free")
    x, n = te.placeholder((30, 8), name="X"), te.placeholder((5,), "int32", name="N")
    taken = te.compute((5, 8), lambda i, j: x[n[i], j], name="T")
    rng = np.random.default_rng(0)
    y = at.input((1, 4, 8, 8), name="x")
    first = at.ops.relu(at.ops.conv2d(y, rng.standard_normal((8, 4, 3, 3)).astype("f"), padding=1))
    second = at.ops.conv2d(first, rng.standard_normal((8, 8, 1, 1)).astype("f"))
    functions = {
        "free": free,
        "bound": free.bind(W=rng.standard_normal((48, 40)).astype("f")),
        "taking": at.build([x, n, taken], name="taking"),
        "model": at.compile_model(at.Graph((y,), (second + first,), "model")),
    }
    made = {name: f._bound()[0] for name, f in functions.items()}
    plain = ComputeDAG.of([x, n, taken])  # for a card; no card is needed, because nothing is launched
    made["card"] = compile_trace(plain, Trace(), at.Target.parse("opencl -device=gpu"), "card")
    for name, artifact in made.items():
        head, members = read_container(Path("it"), artifacts.FORMAT, artifacts.to_bytes([artifact]))
        RIGHT[name] = Right({k: v for k, v in head.items() if k != "members"}, _plain(members))


def _plain(members: Any) -> Members:
    return {name: bytes(data) for name, data in members.items()}


def lie(name: str) -> Callable[[Lie], Lie]:
    def register(make: Lie) -> Lie:
        assert name not in LIES
        LIES[name] = make
        return make

    return register


def told(name: str, of: str, change: Callable[[Head, Members], object]) -> None:
    """A right file with a lie in its manifest or in a part, sealed again."""

    def make() -> bytes:
        head, members = RIGHT[of].parts()
        change(head, members)
        return container_bytes(head, members)

    lie(name)(make)


def right(of: str) -> bytes:
    head, members = RIGHT[of].parts()
    return container_bytes(head, members)


# -- the manifest ------------------------------------------------------------------------------------------

for key in ("name", "target", "entry", "prepare", "args", "needs", "objects", "texts", "values", "meta"):
    told(f"without {key}", "model", lambda h, m, key=key: h.pop(key))
    told(f"{key} is a number", "model", lambda h, m, key=key: h.update({key: 7}))
for key in ("args", "needs", "objects"):
    told(f"{key} holds null", "model", lambda h, m, key=key: h[key].append(None))
for value in (None, "2", True, -1, 0, 1.5, [], 99):
    told(f"format {value!r}", "model", lambda h, m, value=value: h.update(format=value))
told("no variants", "model", lambda h, m: h.update(format=3, variants=[]))
told("variants are a number", "model", lambda h, m: h.update(format=3, variants=4))
told("a variant is a text", "model", lambda h, m: h.update(format=3, variants=["x"]))

# the target
for key, value in (
    ("kind", "quantum"), ("kind", 3), ("kind", "cuda"), ("kind", "opencl"), ("kind", ""),
    ("triple", "aarch64-unknown-linux-gnu"), ("triple", "sparc"), ("num_cores", 0), ("num_cores", -1),
    ("num_cores", 10**9), ("num_cores", "two"), ("cache_bytes", 5), ("vector_bytes", None),
):  # fmt: skip
    told(f"target {key} {value!r}", "model", lambda h, m, k=key, v=value: h["target"].update({k: v}))
told("target without kind", "model", lambda h, m: h["target"].pop("kind"))
told("target with a field too many", "model", lambda h, m: h["target"].update(rank=1))
told("a feature that no processor has", "model", lambda h, m: h["needs"].append("warp-drive"))

# what is called
told("entry is nowhere", "model", lambda h, m: h.update(entry="nowhere"))
told("entry is empty", "model", lambda h, m: h.update(entry=""))
told("entry is a function of libc", "model", lambda h, m: h.update(entry="system"))
told("entry is one of its kernels", "model", lambda h, m: h.update(entry=h["meta"]["kernels"][0]["symbol"]))
told("entry is prepare", "free", lambda h, m: h.update(entry=h["prepare"]))
told("prepare is entry", "free", lambda h, m: h.update(prepare=h["entry"]))
told("prepare is nowhere", "free", lambda h, m: h.update(prepare="nowhere"))
told("nothing prepares", "free", lambda h, m: h.update(prepare=None))


# arguments
def arg(what: str, of: str, number: int, /, **changes: Any) -> None:
    told(what, of, lambda h, m: h["args"][number].update(changes))


told("no arguments", "bound", lambda h, m: h.update(args=[], values={}))
told("an argument too few", "bound", lambda h, m: h["args"].pop(0))
told("an argument too many", "bound", lambda h, m: h["args"].append({**h["args"][0], "name": "more"}))
told("arguments in another order", "bound", lambda h, m: h["args"].reverse())
told("two arguments of one name", "model", lambda h, m: h["args"].append(dict(h["args"][0])))
arg("a smaller input", "bound", 0, shape=[2, 48])
arg("a larger input", "bound", 0, shape=[200, 48])
arg("an input of another rank", "bound", 0, shape=[960])
arg("an input without elements", "bound", 0, shape=[0, 48])
arg("a smaller type", "bound", 0, dtype="int8")
arg("an unknown type", "bound", 0, dtype="float33")
arg("a type that is a number", "bound", 0, dtype=32)
arg("an extent below zero", "bound", 0, shape=[-20, 48])
arg("an extent that is a fraction", "bound", 0, shape=[20.5, 48])
arg("an extent that is true", "bound", 0, shape=[True, 48])
arg("an extent of 2^62", "bound", 0, shape=[1 << 62, 48])
arg("an extent of a thousand digits", "bound", 0, shape=[10**999, 48])
arg("a shape that is a text", "bound", 0, shape="20x48")
arg("a hundred thousand axes", "bound", 0, shape=[1] * 100_000)
arg("an unknown role", "bound", 0, role="friend")
arg("an input that is a workspace", "bound", 0, role="workspace")
arg("an input that is an output", "bound", 0, role="output")
arg("an input that is of each thread", "bound", 0, per_thread=True)
arg("per_thread is a text", "bound", 0, per_thread="yes")
arg("an argument with a part too many", "bound", 0, colour="red")
arg("an argument whose name is a list", "bound", 0, name=["A"])
told("an argument without a shape", "bound", lambda h, m: h["args"][0].pop("shape"))


def arena(change: Callable[[dict[str, Any]], object]) -> Callable[[Head, Members], object]:
    return lambda h, m: change(next(a for a in h["args"] if a["name"] == "workspace.arena"))


told("a smaller arena", "model", arena(lambda a: a.update(shape=[64])))
told("an arena without bytes", "model", arena(lambda a: a.update(shape=[0])))
told("an arena of a petabyte", "model", arena(lambda a: a.update(shape=[1 << 50])))
told("an arena that is an input", "model", arena(lambda a: a.update(role="input")))
told("an arena that each thread has", "model", arena(lambda a: a.update(per_thread=True)))


# -- meta --------------------------------------------------------------------------------------------------


def meta(what: str, of: str, /, **changes: Any) -> None:
    told(what, of, lambda h, m: h["meta"].update(changes))


meta("constants that stay are a text", "free", entry_constants="W")
meta("constants that stay are unknown", "free", entry_constants=["V"])
meta("constants that stay are inputs", "free", entry_constants=["A"])
meta("more constants stay", "free", entry_constants=["W"])
meta("alone is a text", "bound", alone="yes")
meta("prepared by a number", "free", prepared_by=5)
meta("prepared by what reads nothing known", "free", prepared_by={"code": "x", "reads": ["V"]})
meta("prepared by code that is a list", "free", prepared_by={"code": [], "reads": []})
meta("no index ranges", "taking", index_ranges={})
meta("wider index ranges", "taking", index_ranges={"N": [0, 10**6]})
meta("index ranges of one number", "taking", index_ranges={"N": [0]})
meta("index ranges of texts", "taking", index_ranges={"N": ["0", "29"]})
meta("index ranges of floats", "taking", index_ranges={"X": [0, 29]})
meta("index ranges of what is not there", "taking", index_ranges={"M": [0, 29]})
meta("index ranges are a list", "taking", index_ranges=[0, 29])
meta("kernels are a number", "model", kernels=5)
meta("a kernel is a number", "model", kernels=[5])
meta("programs are a list", "model", programs=[])
told("a kernel without a symbol", "model", lambda h, m: h["meta"]["kernels"][1].pop("symbol"))


def slot(value: Any) -> Callable[[Head, Members], object]:
    return lambda h, m: h["meta"]["kernels"][1]["slots"].__setitem__(0, value)


for what, value in (
    ("outside the arguments", [999, 0]), ("before the arguments", [-1, 0]), ("before its memory", [0, -8]),
    ("behind its memory", [0, 1 << 40]), ("at a text", ["0", 0]), ("at one number", [0]),
):  # fmt: skip
    told(f"a kernel's argument {what}", "model", slot(value))


@lie("a kernel's argument beyond the end")
def _() -> bytes:
    head, members = RIGHT["model"].parts()
    sizes = [int(np.prod(a["shape"])) * dtype_of(a["dtype"]).bytes for a in head["args"]]
    place = next(s for k in head["meta"]["kernels"] for s in k["slots"] if sizes[s[0]] > 4)
    place[1] = sizes[place[0]] - 4
    return container_bytes(head, members)


def launch(what: str, /, **changes: Any) -> None:
    """A lie about how a card's kernel is launched."""
    told(what, "card", lambda h, m: h["meta"]["launches"]["run"][0].update(changes))


launch("a launch without a grid", grid=None)
launch("a grid of no blocks", grid=[0, 1, 1])
launch("a grid below zero", grid=[-1, 1, 1])
launch("a block of two numbers", block=[1, 1])
launch("a launch of an object that is not there", object=7)
launch("a launch of the object before the first", object=-1)
launch("a launch's argument outside", args=[[99, 0], [0, 0], [0, 0]])
launch("a launch's argument before the first", args=[[-1, 0], [0, 0], [0, 0]])
launch("a launch's argument behind its end", args=[[0, 1 << 40], [1, 0], [2, 0]])
launch("a launch's argument before its memory", args=[[0, -4], [1, 0], [2, 0]])
launch("shared memory of a petabyte", dynamic_shared_bytes=1 << 50)
launch("shared memory below zero", dynamic_shared_bytes=-1)
told("launches are a number", "card", lambda h, m: h["meta"].update(launches=5))
told("no launches", "card", lambda h, m: h["meta"].pop("launches"))
told("a card's source that is no text", "card", lambda h, m: m.update({h["objects"][0]: b"\xff\xfe"}))


# -- parts: weights, texts, objects ------------------------------------------------------------------------


def part(name: str, of: str, kind: str, change: Callable[[bytes], bytes]) -> None:
    def apply(head: Head, members: Members) -> None:
        first = next(m for m in members if m.startswith(kind))
        members[first] = change(members[first])

    told(name, of, apply)


part("weights too short", "bound", "values/", lambda d: d[:-4])
part("weights too long", "bound", "values/", lambda d: d + b"1234")
part("no bytes of weights", "bound", "values/", lambda d: b"")
part("a text that is not compressed", "model", "texts/", lambda d: b"\xff\xfe\xfd" + d)
part("a text that is no text", "model", "texts/", lambda d: zlib.compress(b"\xff\xfe\xfd"))
part("half a text", "model", "texts/", lambda d: d[: len(d) // 2])
part("a text and more", "model", "texts/", lambda d: d + d)
part("a text that fills all memory", "model", "texts/", lambda d: zlib.compress(bytes(1 << 28)))
told(
    "weights of an unknown argument",
    "bound",
    lambda h, m: h["values"].update(Z=next(iter(h["values"].values()))),
)
told("weights of an input", "bound", lambda h, m: h["values"].update(A=next(iter(h["values"].values()))))
told(
    "weights that are not there",
    "bound",
    lambda h, m: h["values"].update({k: "values/99.bin" for k in h["values"]}),
)
told("no weights at all", "model", lambda h, m: h.update(values={}))
told("objects that are not there", "model", lambda h, m: h.update(objects=["objects/99.o"]))
told("no objects", "model", lambda h, m: h.update(objects=[]))
told("an object twice", "model", lambda h, m: h["objects"].append(h["objects"][0]))
told("an object that is a text", "model", lambda h, m: h["objects"].append(next(iter(h["texts"].values()))))
told("without the object of a kernel", "model", lambda h, m: h["objects"].pop(0))
told("without the object of the plan", "model", lambda h, m: h["objects"].pop())
part("an object without bytes", "model", "objects/", lambda d: b"")
part("an object of zeros", "model", "objects/", lambda d: bytes(len(d)))
part("an object of random bytes", "model", "objects/", lambda d: np.random.default_rng(1).bytes(len(d)))
part("half an object", "model", "objects/", lambda d: d[: len(d) // 2])
part("an object's first 64 bytes", "model", "objects/", lambda d: d[:64])
for what, at_byte, byte in (
    ("32 bits", 4, 1), ("big-endian", 5, 2), ("an executable", 16, 2), ("for SPARC", 18, 2),
    ("for aarch64", 18, 183),
):  # fmt: skip
    part(f"an object that says it is {what}", "model", "objects/",
         lambda d, n=at_byte, b=byte: d[:n] + bytes([b]) + d[n + 1 :])  # fmt: skip
part(
    "an object whose sections lie outside",
    "model",
    "objects/",
    lambda d: d[:40] + struct.pack("<Q", 1 << 60) + d[48:],
)
part("an object of 65535 sections", "model", "objects/", lambda d: d[:60] + b"\xff\xff" + d[62:])


# -- JSON --------------------------------------------------------------------------------------------------


def written(name: str, change: Callable[[bytes], bytes]) -> None:
    """A lie in the manifest's own bytes."""

    def make() -> bytes:
        with zipfile.ZipFile(io.BytesIO(right("model"))) as archive:
            parts = {i.filename: archive.read(i) for i in archive.infolist()}
        return rezipped({**parts, MANIFEST: change(parts[MANIFEST])})

    lie(name)(make)


def rezipped(parts: Members, **options: Any) -> bytes:
    """Parts in a zip with another alignment than ours, and sealed."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        archive.comment = SEAL + b"0" * 64
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name) if not options else name, data)
    return sealed(file.getvalue())


def sealed(data: bytes) -> bytes:
    """The bytes with their seal, if the parts can be found."""
    from pathlib import Path

    from autotensor.base.errors import ArtifactError
    from autotensor.runtime.files import container

    try:
        spans = container._spans(data, Path("it"))
        manifest = json.loads(data[slice(*spans[MANIFEST])])
        members = {n for n in manifest["members"] if n in spans}
        return data[:-64] + container._seal(memoryview(data), spans, members)
    except (ArtifactError, KeyError, ValueError, TypeError, RecursionError):
        return data[:-64] + hashlib.sha256(data[:-64]).hexdigest().encode()


written("a manifest that is no JSON", lambda d: d[:-2])
written("a manifest that is a list", lambda d: b"[" + d + b"]")
written("a manifest that is null", lambda d: b"null")
written("an empty manifest", lambda d: b"")
written("a manifest that is no text", lambda d: b"\xff\xfe" + d)
written("a manifest that is a hundred thousand lists deep", lambda d: b"[" * 100_000 + b"]" * 100_000)
written("meta a hundred thousand lists deep", lambda d: _meta_of(d, b"[" * 100_000 + b"]" * 100_000))
written(
    "an extent that is NaN",
    lambda d: d.replace(b'"shape": [\n    1,', b'"shape": [\n    NaN,', 1).replace(
        b"    1,\n", b"    NaN,\n", 1
    ),
)
written("an extent that is Infinity", lambda d: d.replace(b"    4,\n", b"    Infinity,\n", 1))
written(
    "an extent of a million digits", lambda d: d.replace(b"    4,\n", b"    " + b"9" * 1_000_000 + b",\n", 1)
)
written("no list of parts", lambda d: d.replace(b'"members":', b'"numbers":', 1))
written("a list of parts that is a number", lambda d: _without(d, members=7))
written("a part of another size", lambda d: _table(d, lambda t: t.update(bytes=1)))
written("a part of negative size", lambda d: _table(d, lambda t: t.update(bytes=-1)))
written("a part of 2^70 bytes", lambda d: _table(d, lambda t: t.update(bytes=1 << 70)))
written("a part with another hash", lambda d: _table(d, lambda t: t.update(sha256="0" * 64)))
written("a part without a hash", lambda d: _table(d, lambda t: t.pop("sha256")))


def _meta_of(manifest: bytes, text: bytes) -> bytes:
    head = json.loads(manifest)
    head["meta"] = "HERE"
    return json.dumps(head).encode().replace(b'"HERE"', text)


def _without(manifest: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(manifest), **changes}).encode()


def _table(manifest: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    head = json.loads(manifest)
    change(next(iter(head["members"].values())))
    return json.dumps(head).encode()
