"""Reads ONNX files. Tensors in other files are read only if that is safe.

    load("model.onnx") ──▶ Loaded(proto, arrays of initializers on demand)

Nothing in a file is executed. A file with further tensors must be complete and in the model's own directory.
Sizes are checked before memory is allocated.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from autotensor.base.errors import InputError
from autotensor.frontends.errors import Unsupported
from autotensor.frontends.onnx.element_types import Array
from autotensor.frontends.onnx.errors import Malformed
from autotensor.frontends.onnx.messages import ModelProto, TensorProto
from autotensor.frontends.onnx.operator_rules import newest_opset
from autotensor.frontends.onnx.tensors import MAX_BYTES, array_of

if TYPE_CHECKING:
    import onnx

_STANDARD = ("", "ai.onnx")


@dataclass(frozen=True)
class Loaded:
    """A parsed model, and the directory of its files."""

    proto: ModelProto | onnx.ModelProto
    directory: Path | None = None
    name: str = "model"

    @property
    def opsets(self) -> dict[str, int]:
        """Version by domain; the standard domain is ""."""
        return {plain_domain(i.domain): int(i.version) for i in self.proto.opset_import}

    def array(self, tensor: TensorProto, in_bytes: bool = False) -> Array:
        """The values of a tensor of this model, read-only. Raises Malformed or Unsupported, with the tensor's
        name.

        in_bytes: whole numbers of 4 bits are read too, as bytes.
        """
        return array_of(tensor, self.directory, in_bytes)


def plain_domain(domain: str) -> str:
    return "" if domain in _STANDARD else domain


def load(source: str | Path | bytes | onnx.ModelProto | Loaded) -> Loaded:
    """A model from a file, its bytes, or a ModelProto; a loaded one is returned unchanged.

    Raises InputError if it cannot be read, Malformed if it is not a model, Unsupported for unknown opsets.
    """
    if isinstance(source, Loaded):
        return source
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked(_parsed(bytes(source), "the given bytes"))
    # a message of the package onnx, which is not imported for this check
    if type(source).__name__ == "ModelProto":
        return _checked(_parsed(cast(Any, source), "the given model"))
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(
            f"a model is a path, bytes or an onnx.ModelProto; this is a {type(source).__name__}.",
            fix="onnx.helper.make_model makes one of a graph.",
        )
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a model file.")
    if not path.is_file():
        raise InputError(f"there is no model file {str(path)!r}.")
    if not path.stat().st_size:
        raise Malformed(f"{path} is empty.", fix="Is the file an ONNX model?")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path} has {path.stat().st_size} bytes; a model file has at most {MAX_BYTES}.",
            fix="Keep its tensors in files next to it (external data).",
        )
    parsed = _parsed(path.read_bytes(), str(path))
    return _checked(Loaded(parsed.proto, path.resolve().parent, path.stem))


def _parsed(source: bytes | onnx.ModelProto, where: str) -> Loaded:
    try:
        proto = ModelProto.read(memoryview(source)) if isinstance(source, bytes) else source
    except Malformed as error:
        raise Malformed(f"{where}: this is not an ONNX model ({error.what.rstrip('.')}).") from error
    kept = "".join(c if c.isalnum() or c in "_-" else "_" for c in proto.graph.name)
    return Loaded(proto, None, kept[:60] or "model")


def _checked(model: Loaded) -> Loaded:
    if not model.proto.HasField("graph"):
        raise Malformed(f"model {model.name!r} holds no graph.", fix="Is the file an ONNX model?")
    graph = model.proto.graph
    if not graph.output:
        raise Malformed(f"model {model.name!r} has no outputs.")
    if twice := [n for n, times in Counter(v.name for v in graph.input).items() if times > 1]:
        raise Malformed(f"model {model.name!r} has several inputs that are called {twice[0]!r}.")
    if not model.proto.opset_import:
        raise Malformed(f"model {model.name!r} does not say which opset it uses.")
    version = model.opsets.get("")
    newest = newest_opset()
    if version is not None and not 1 <= version <= newest:
        raise Unsupported(
            f"model {model.name!r} uses opset {version}; 1 to {newest} are read.",
            fix="onnx.version_converter changes a model's opset.",
        )
    return model
