"""CUDA C++: the dialect, and the backend that writes a program as source text. NVRTC compiles this text and
needs no headers."""

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
from autotensor.ir.func import Program
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import ObjectCache

_INTEGERS = {
    **{"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"},
    **{
        "uint8": "unsigned char",
        "uint16": "unsigned short",
        "uint32": "unsigned int",
        "uint64": "unsigned long long",
    },
}
_FLOATS = {"float32": "float", "float64": "double"}
_FUNCTION = "__device__ __forceinline__"

_NAMES = {"abs": "fabs", "round": "rint"}
_OWN = ("sigmoid", "isnan", "isinf", "rounded", "floordiv", "floormod")


def _call(name: str, t: DType) -> str:
    if t.is_int or name in _OWN:
        return f"at_{name}_{t}"
    return _NAMES.get(name, name) + ("f" if t.bits == 32 else "")


def _constant(value: float, t: DType) -> str:
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(value):
        return "__int_as_float(0x7f800000)" if value > 0 else "__int_as_float(0xff800000)"
    return repr(value) if t.bits == 64 else f"{value!r}f"


# One instruction since sm_80. On older cards it takes one comparison more than fmaxf, which drops NaN.
_MINMAX32 = """{fn} float at_{name}_float32(float a, float b) {{
#if __CUDA_ARCH__ >= 800
    float r;
    asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return a {sign} b || a != a ? a : b;
#endif
}}"""


def _helpers() -> dict[str, str]:
    fn = _FUNCTION
    out = {
        "at_pack": "template <class T, int N> struct alignas(sizeof(T) * N) at_pack { T lane[N]; };",
        **integer_helpers(fn, _INTEGERS),
        **whole_helpers(fn, _INTEGERS, _FLOATS),
        **division_helpers(fn, {"float32": ("float", "f"), "float64": ("double", "")}),
        **odd_helpers(fn, _INTEGERS, "__float_as_uint", "__uint_as_float"),
        **float_helpers(fn, "__float_as_uint", "__uint_as_float"),
        "at_h2f": f"""{fn} float at_h2f(unsigned short h) {{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}}""",
        "at_f2h": f"""{fn} unsigned short at_f2h(float x) {{
    unsigned short h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}}""",
        **minmax_helpers(fn, _INTEGERS, _FLOATS),
    }
    for name, sign in (("min", "<="), ("max", ">=")):
        out[f"at_{name}_float32"] = _MINMAX32.format(fn=fn, name=name, sign=sign)
    for t, kind in _FLOATS.items():
        exp, inf = (
            ("expf", "__int_as_float(0x7f800000)")
            if t == "float32"
            else ("exp", "__longlong_as_double(0x7ff0000000000000LL)")
        )
        fabs = "fabsf" if t == "float32" else "fabs"
        out[f"at_sigmoid_{t}"] = f"{fn} {kind} at_sigmoid_{t}({kind} x) {{ return 1 / (1 + {exp}(-x)); }}"
        # the compiler never fuses this addition with a product; adding -0 changes nothing
        add = "__fadd_rn" if t == "float32" else "__dadd_rn"
        out[f"at_rounded_{t}"] = f"{fn} {kind} at_rounded_{t}({kind} x) {{ return {add}(x, -0.0); }}"
        out[f"at_isnan_{t}"] = f"{fn} bool at_isnan_{t}({kind} x) {{ return x != x; }}"
        out[f"at_isinf_{t}"] = f"{fn} bool at_isinf_{t}({kind} x) {{ return {fabs}(x) == {inf}; }}"
    return out | _copy_helpers() | _tensor_helpers()


# `.cg` bypasses the first cache and copies only 16 bytes at a time. If 0 bytes are read, zeros are written.
_COPY = """{fn} void at_copy{size}{suffix}(void* to, const void* from{condition}) {{
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {size}{operand};"
        :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from){given} : "memory");
}}"""


def _copy_helpers() -> dict[str, str]:
    """Asynchronous copies from global to shared memory, in groups; since sm_80."""
    fn = _FUNCTION
    out = {
        "at_commit": f'{fn} void at_commit() {{ asm volatile("cp.async.commit_group;" ::: "memory"); }}',
        "at_await": f"""template <int left> {fn} void at_await() {{
    asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory");
}}""",
    }
    for size in (4, 8, 16):
        cache = "cg" if size == 16 else "ca"
        out[f"at_copy{size}"] = _COPY.format(
            fn=fn, size=size, suffix="", condition="", cache=cache, operand="", given=""
        )
        out[f"at_copy{size}_if"] = _COPY.format(
            fn=fn,
            size=size,
            suffix="_if",
            condition=", bool wanted",
            cache=cache,
            operand=", %2",
            given=f', "r"(wanted ? {size} : 0)',
        )
    return out


def _tensor_helpers() -> dict[str, str]:
    """Matrix instructions of a warp; tensor_intrinsics.py says which lane holds which elements."""
    fn = _FUNCTION
    out = {
        "at_tf32": f"""{fn} unsigned int at_tf32(float x) {{
    unsigned int r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}}""",
        "at_pair": f"""{fn} unsigned int at_pair(unsigned short low, unsigned short high) {{
    return (unsigned int)low | (unsigned int)high << 16;
}}""",
    }
    for count in (2, 4):
        for turned in ("", "t"):
            registers = ", ".join(f"%{n}" for n in range(count))
            results = ", ".join(f'"=r"(r[{n}])' for n in range(count))
            name = f"at_ldmatrix{count}{turned}"
            kind = f"m8n8.x{count}{'.trans' if turned else ''}.shared.b16"
            out[name] = f"""{fn} void {name}(unsigned int* r, const void* row) {{
    asm volatile("ldmatrix.sync.aligned.{kind} {{{registers}}}, [%{count}];"
        : {results} : "r"((unsigned int)__cvta_generic_to_shared(row)));
}}"""
    for name, shape, t in (
        ("at_mma_tf32", "m16n8k8", "tf32"),
        ("at_mma_f16", "m16n8k16", "f16"),
        ("at_mma_bf16", "m16n8k16", "bf16"),
    ):
        out[
            name
        ] = f"""{fn} void {name}(float& c0, float& c1, float& c2, float& c3, unsigned int a0, unsigned int a1,
                         unsigned int a2, unsigned int a3, unsigned int b0, unsigned int b1) {{
    asm("mma.sync.aligned.{shape}.row.col.f32.{t}.{t}.f32 "
        "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}}"""
    return out


def _vector_store(kind: str, pointer: str, at: str, lanes: int, values: list[str]) -> str:
    pack = f"at_pack<{kind}, {lanes}>"
    return f"*({pack}*)({pointer} + {at}) = {pack}{{{{{', '.join(values)}}}}};"


CUDA = Dialect(
    name="CUDA C++",
    kernel='extern "C" __global__ void',
    pointer=lambda kind, const: f"{'const ' if const else ''}{kind}* __restrict__",
    shared="__shared__ __align__(16)",
    barrier="__syncthreads();",
    threads={axis: f"(int){axis}" for axis in (f"{k}Idx.{d}" for k in ("block", "thread") for d in "xyz")},
    types={
        **_INTEGERS,
        **_FLOATS,
        "bool": "unsigned char",
        "float16": "unsigned short",
        "bfloat16": "unsigned short",
    },
    values={**_INTEGERS, **_FLOATS, "bool": "bool", "float16": "float", "bfloat16": "float"},
    function=_FUNCTION,
    call=_call,
    constant=_constant,
    vector_load=lambda kind, pointer, at, lanes: f"*(const at_pack<{kind}, {lanes}>*)({pointer} + {at})",
    vector_store=_vector_store,
    vector_type=lambda kind, lanes: f"at_pack<{kind}, {lanes}>",
    lane=lambda vector, n: f"{vector}.lane[{n}]",
    aligned=True,
    widest=16,
    # 1: one block at once is enough. Without this bound ptxas spills a few bytes to make room for more blocks
    # (sm_80 and sm_90, 3x3 convolutions of ResNet-18: 4 bytes at 48 registers of 255)
    block_size=lambda threads: f" __launch_bounds__({threads}, 1)",
    helpers=_helpers(),
    tensors=True,
    copies=True,
    reserved=frozenset(
        [
            "threadIdx",
            "blockIdx",
            "blockDim",
            "gridDim",
            "warpSize",
            "shared_memory",
            "dim3",
            "half",
            "float2",
            "float4",
            "int2",
            "int4",
            "at_pack",
            "fabs",
            "fmax",
            "fmin",
            "hypot",
            "ldexp",
            "nan",
            "nextafter",
            "remainder",
            "j0",
            "j1",
            "jn",
            "y0",
            "y1",
            "yn",
            "gamma",
            "clock",
            "lrint",
        ]
    ),
)


@backend("cuda")
def compile_cuda(
    program: Program, target: Target, *, name: str, asm: bool = False, cache: ObjectCache | None = None
) -> Artifact:
    """CUDA C++ source of a program."""
    return gpu_artifact(program, target, CUDA, name)
