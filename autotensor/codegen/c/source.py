"""From a program to the artifact of a GPU target: one source text, and the launch of each of its kernels.

`meta["launches"]` lists the kernels of both parts in order, as plain JSON:

    {"prepare": [], "run": [{"kernel": "t0_3fa9…", "object": 0, "args": [[0, 0], [2, 0]], "grid": [16, 1, 1],
                             "block": [256, 1, 1], "dynamic_shared_bytes": 0}]}

For each parameter of the kernel, `args` has the index of the artifact's argument and an offset in bytes.
Symbols end in a hash of the kernel's text, so that kernels of many programs can be put together.
"""

from __future__ import annotations

import re
from typing import Any

from autotensor.base.errors import CodegenError
from autotensor.base.target import Target
from autotensor.codegen.c.dialect import Dialect
from autotensor.codegen.c.kernel import helpers_text, is_dynamic, render
from autotensor.codegen.c.resources import tile_of
from autotensor.ir.func import Launch, PrimFunc, Program, Role
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.object_cache import object_key

_STAND_IN = "KERNEL"
STEM_LENGTH = 64  # letters of a name in a symbol; a hash of the text follows


def gpu_artifact(program: Program, target: Target, dialect: Dialect, name: str) -> Artifact:
    """Source and launches of a program."""
    if not program.run:
        raise CodegenError(f"program {name!r} has no kernel to run.")
    number = {b.name: n for n, (b, _) in enumerate(program.args)}
    texts: list[str] = []
    helpers: set[str] = set()
    launches: dict[str, list[dict[str, Any]]] = {"prepare": [], "run": []}
    for part, kernels in (("prepare", program.prepare), ("run", program.run)):
        for func in kernels:
            text, used = render(func, dialect, _STAND_IN)
            symbol = f"{_stem(func.name)}_{object_key(text)[:12]}"
            texts.append(text.replace(f" {_STAND_IN}(", f" {symbol}(", 1))
            helpers |= used
            launches[part].append(_launch(func, symbol, [number[b.name] for b in func.params]))
    source = _head(program, dialect) + "\n".join([helpers_text(helpers | _packs(texts), dialect), *texts])
    constants = {b for k in program.run for b in k.params}
    kept = [b.name for b, role in program.args if role is Role.CONSTANT and b in constants]
    return Artifact(
        name=name,
        target=target,
        entry=launches["run"][0]["kernel"],
        prepare=launches["prepare"][0]["kernel"] if launches["prepare"] else None,
        args=tuple(ArgSpec(b.name, role.value, b.shape, str(b.dtype)) for b, role in program.args),
        objects=(source.encode(),),
        texts={**program.texts, target.kind: source},
        meta={"entry_constants": kept, "launches": launches},
    )


def _launch(func: PrimFunc, symbol: str, args: list[int]) -> dict[str, Any]:
    launch = func.launch or Launch((1, 1, 1), (1, 1, 1))
    return {
        "kernel": symbol,
        "object": 0,
        "args": [[n, 0] for n in args],
        "grid": list(launch.grid),
        "block": list(launch.block),
        "dynamic_shared_bytes": launch.shared_bytes if is_dynamic(func) else 0,
        "tile": tile_of(func),
    }


def _packs(texts: list[str]) -> set[str]:
    return {"at_pack"} if any("at_pack<" in t for t in texts) else set()


def _head(program: Program, dialect: Dialect) -> str:
    """The lines at the top of the file."""
    if dialect.name != "OpenCL C" or not any(str(b.dtype) == "float64" for b, _ in program.args):
        return ""
    return "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"


def _stem(name: str) -> str:
    """A stage's name as part of a symbol. It must be short: PoCL names files after kernels and aborts if a
    name is too long."""
    text = re.sub(r"\W+", "_", name).strip("_")[:STEM_LENGTH]
    return text if text and not text[0].isdigit() else f"k{text}"
