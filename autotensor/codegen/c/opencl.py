"""OpenCL C: the dialect, and the backend that writes a program as source text. The driver of the device
compiles this text."""

from __future__ import annotations

import math

from autotensor.base.dtype import DType
from autotensor.base.target import Target
from autotensor.codegen.backend import backend
from autotensor.codegen.c.dialect import Dialect
from autotensor.codegen.c.helpers import (
    division_helpers,
    float_helpers,
    integer_helpers,
    minmax_helpers,
    odd_helpers,
    whole_helpers,
)
from autotensor.codegen.c.source import gpu_artifact
from autotensor.codegen.c.vector_expr import rounded_helper, vector_helpers
from autotensor.ir.func import Program
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import ObjectCache

_INTEGERS = {
    **{"int8": "char", "int16": "short", "int32": "int", "int64": "long"},
    **{"uint8": "uchar", "uint16": "ushort", "uint32": "uint", "uint64": "ulong"},
}
_FLOATS = {"float32": "float", "float64": "double"}
_FUNCTION = "inline"

_NAMES = {"abs": "fabs", "round": "rint", "isnan": "at_isnan", "isinf": "isinf"}
_OWN = ("sigmoid", "rounded", "floordiv", "floormod")  # helpers that exist for both float types


def _call(name: str, t: DType) -> str:
    if t.is_int:
        return f"at_{name}_{t}"
    return f"at_{name}_{t}" if name in _OWN or name == "isnan" else _NAMES.get(name, name)


def _constant(value: float, t: DType) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return repr(value) if t.bits == 64 else f"{value!r}f"


def _helpers() -> dict[str, str]:
    out = {
        **integer_helpers(_FUNCTION, _INTEGERS),
        **whole_helpers(_FUNCTION, _INTEGERS, _FLOATS),
        **division_helpers(_FUNCTION, {t: (kind, "") for t, kind in _FLOATS.items()}),
        **odd_helpers(_FUNCTION, _INTEGERS, "as_uint", "as_float"),
        **float_helpers(_FUNCTION, "as_uint", "as_float"),
        **minmax_helpers(_FUNCTION, _INTEGERS, _FLOATS),
    }
    for t, kind in _FLOATS.items():
        out[f"at_sigmoid_{t}"] = (
            f"{_FUNCTION} {kind} at_sigmoid_{t}({kind} x) {{ return 1 / (1 + exp(-x)); }}"
        )
        out[f"at_rounded_{t}"] = rounded_helper(_FUNCTION, t, kind)
        out[f"at_isnan_{t}"] = f"{_FUNCTION} bool at_isnan_{t}({kind} x) {{ return x != x; }}"
    return {**out, **vector_helpers(_FUNCTION, _FLOATS.items())}


OPENCL = Dialect(
    name="OpenCL C",
    kernel="__kernel void",
    pointer=lambda kind, const: f"__global {'const ' if const else ''}{kind}* restrict",
    shared="__local",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    threads={
        **{f"blockIdx.{d}": f"(int)get_group_id({n})" for n, d in enumerate("xyz")},
        **{f"threadIdx.{d}": f"(int)get_local_id({n})" for n, d in enumerate("xyz")},
    },
    types={**_INTEGERS, **_FLOATS, "bool": "uchar", "float16": "ushort", "bfloat16": "ushort"},
    values={**_INTEGERS, **_FLOATS, "bool": "bool", "float16": "float", "bfloat16": "float"},
    function=_FUNCTION,
    call=_call,
    constant=_constant,
    vector_load=lambda kind, pointer, at, lanes: f"vload{lanes}(0, {pointer} + {at})",
    vector_store=lambda kind, pointer, at, lanes, values: (
        f"vstore{lanes}(({kind}{lanes})({', '.join(values)}), 0, {pointer} + {at});"
    ),
    vector_type=lambda kind, lanes: f"{kind}{lanes}",
    lane=lambda vector, n: f"{vector}.s{n:x}",
    aligned=False,
    widest=64,
    block_size=lambda threads: "",
    helpers=_helpers(),
    vectors=True,
    reserved=frozenset(
        [
            "kernel",
            "global",
            "local",
            "constant",
            "private",
            "restrict",
            "image2d_t",
            "sampler_t",
            "event_t",
            "half",
            "uchar",
            "ushort",
            "uint",
            "ulong",
            "bool2",
            "size_t",
            "ptrdiff_t",
            "intptr_t",
            "get_global_id",
            "get_local_id",
            "get_group_id",
            "barrier",
            "select",
            "clamp",
            "mix",
            "step",
            "sign",
            "dot",
            "cross",
            "length",
            "distance",
            "normalize",
            "degrees",
            "radians",
            "any",
            "all",
            "as_int",
            "as_uint",
            "as_float",
            "convert_int",
            "fabs",
            "fmax",
            "fmin",
            "hypot",
            "ldexp",
            "log10",
            "mad",
            "maxmag",
            "minmag",
            "modf",
            "nan",
            "nextafter",
            "pown",
            "powr",
            "remainder",
            "rootn",
            "tgamma",
            "lgamma",
            "vload4",
            "vstore4",
            "printf",
            "prefetch",
            "wait_group_events",
            "upsample",
            "hadd",
            "mul24",
            "mad24",
            "popcount",
            "rotate",
        ]
    ),
)


@backend("opencl")
def compile_opencl(
    program: Program, target: Target, *, name: str, asm: bool = False, cache: ObjectCache | None = None
) -> Artifact:
    """OpenCL C source of a program."""
    return gpu_artifact(program, target, OPENCL, name)
