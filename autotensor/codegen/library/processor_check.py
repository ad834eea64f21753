"""Native code that runs first and checks whether the processor has the features that the other code needs.

    cpuid(leaf, sub) ──▶ registers a, b, c, d    all bits of a mask set?     x86-64
    xgetbv           ──▶ what the system saves of vector registers           x86-64
    getauxval(16)    ──▶ bits of features                                    aarch64 on Linux

Source: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E; Linux, arch/arm64/include/uapi/asm/hwcap.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.errors import ArtifactError

# LLVM's name of a feature → leaf and sub-leaf of cpuid, register, bit
X86 = {
    **{name: (1, 0, "c", bit) for name, bit in
       {"sse4.1": 19, "sse4.2": 20, "avx": 28, "fma": 12, "f16c": 29}.items()},
    **{name: (7, 0, "b", bit) for name, bit in
       {"bmi": 3, "avx2": 5, "bmi2": 8, "avx512f": 16, "avx512dq": 17, "avx512cd": 28, "avx512bw": 30,
        "avx512vl": 31}.items()},
    **{name: (7, 0, "c", bit) for name, bit in
       {"avx512vbmi": 1, "avx512vbmi2": 6, "avx512vnni": 11, "avx512bitalg": 12,
        "avx512vpopcntdq": 14}.items()},
    **{name: (7, 0, "d", bit) for name, bit in
       {"amx-bf16": 22, "avx512fp16": 23, "amx-tile": 24, "amx-int8": 25}.items()},
    **{name: (7, 1, "a", bit) for name, bit in {"avxvnni": 4, "avx512bf16": 5}.items()},
}  # fmt: skip
# bits of XCR0, by prefix of the feature's name
_SAVED = {"amx": 0x60000, "avx512": 0xE6, "avx": 0x6, "f16c": 0x6, "fma": 0x6}
_OSXSAVE = (1, 0, "c", 27)  # the bit that says whether xgetbv may be used

# LLVM's name of a feature → the argument of getauxval, mask
ARM = {
    "neon": (16, 1 << 1),
    "fullfp16": (16, 1 << 9 | 1 << 10),
    "dotprod": (16, 1 << 20),
    "sve": (16, 1 << 22),
    "sve2": (26, 1 << 1),
    "i8mm": (26, 1 << 13),
    "bf16": (26, 1 << 14),
}

_ASKS = """
define internal i32 @cpuid_{register}(i32 %leaf, i32 %sub) noinline {{
  %all = call {{ i32, i32, i32, i32 }} asm sideeffect "cpuid",
      "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}}"(i32 %leaf, i32 %sub)
  %one = extractvalue {{ i32, i32, i32, i32 }} %all, {number}
  ret i32 %one
}}
"""
_XGETBV = """
define internal i32 @saved() noinline {
  %both = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %low = extractvalue { i32, i32 } %both, 0
  ret i32 %low
}
"""


def processor_check(machine: str, needs: Sequence[str]) -> str:
    """LLVM IR of `i1 @processor_fits()`: whether the processor has all these features, in LLVM's names.

    machine: the processor's family. Only "x86_64" and "aarch64" are checked. Raises ArtifactError for a
    feature without a known check.
    """
    if machine not in ("x86_64", "aarch64"):
        return "define internal i1 @processor_fits() {\n  ret i1 true\n}\n"
    unknown = sorted(set(needs) - set(X86 if machine == "x86_64" else ARM))
    if unknown:
        raise ArtifactError(f"no way is known to detect, on a processor, {', '.join(unknown)}.")
    return _x86(needs) if machine == "x86_64" else _arm(needs)


def _x86(needs: Sequence[str]) -> str:
    masks: dict[tuple[int, int, str], int] = {}
    saved = 0
    for name in needs:
        saved |= next((bits for prefix, bits in _SAVED.items() if name.startswith(prefix)), 0)
    for leaf, sub, register, bit in [*(X86[n] for n in needs), *([_OSXSAVE] if saved else [])]:
        masks[leaf, sub, register] = masks.get((leaf, sub, register), 0) | 1 << bit
    tests = [(f"cpuid_{r}(i32 {leaf}, i32 {sub})", mask) for (leaf, sub, r), mask in sorted(masks.items())]
    most = max((leaf for leaf, *_ in masks), default=0)
    lines = [
        "define internal i1 @processor_fits() {",
        "  %leaves = call i32 @cpuid_a(i32 0, i32 0)",
        f"  if ult i32 %leaves, {most} ret i1 false",
    ]
    asks = "".join(_ASKS.format(register=r, number=n) for n, r in enumerate("abcd"))
    return asks + _XGETBV + _all_of(lines, "i32", [*tests, *([("saved()", saved)] if saved else [])])


def _arm(needs: Sequence[str]) -> str:
    words: dict[int, int] = {}
    for name in needs:
        word, mask = ARM[name]
        words[word] = words.get(word, 0) | mask
    lines = ["declare i64 @getauxval(i64)", "define internal i1 @processor_fits() {"]
    return _all_of(lines, "i64", [(f"getauxval(i64 {w})", mask) for w, mask in words.items()])


def _all_of(lines: list[str], kind: str, tests: Sequence[tuple[str, int]]) -> str:
    """A function that begins with `lines` and returns true if each call's result has all bits of its mask."""
    for n, (call, mask) in enumerate(tests):
        lines += [
            f"  %v{n} = call {kind} @{call}",
            f"  %m{n} = and {kind} %v{n}, {mask}",
            f"  if ne {kind} %m{n}, {mask} ret i1 false",
        ]
    return "\n".join([*lines, "  ret i1 true", "}", ""])


__all__ = ["processor_check"]
