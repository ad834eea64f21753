"""Fits LLVM text that was made for another processor to this one.

    %k = call <16 x i1> asm "", "=^Yk,0"(<16 x i1> %m)      a copy in a register of masks, which AVX2 lacks
    ──▶  %k.from = bitcast <16 x i1> %m to i16
         %k.bits = call i16 asm "", "=r,0"(i16 %k.from)      the copy in a register of any processor
         %k = bitcast i16 %k.bits to <16 x i1>

Empty assembly hides values from LLVM's optimiser and names a kind of register (expr.py, lanes/load_masks.py).
"""

from __future__ import annotations

import re

from autotensor.base.target import Target, features_of

_MASKS = "^Yk"
_COPY = re.compile(
    r'(?P<new>%[\w.]+) = call (?P<type><(?P<lanes>\d+) x (?P<word>\w+)>) asm "", '
    r'"=(?P<register>\^Yk|v|x),0"\((?P=type) (?P<old>%[\w.]+)\)'
)


def adapted(text: str, target: Target) -> tuple[str, str]:
    """The text with copies in registers that the target has, and the features with which LLVM may compile it.

    LLVM folds masks of loads wrongly on processors with registers of masks (lanes/load_masks.py). A text
    whose loads have no copies of their masks was made for other processors, and is compiled as for these.
    """
    has, features = features_of(target), target.features
    if "avx512f" in has and "@llvm.masked.load" in text and f"={_MASKS}," not in text:
        has, features = has - {"avx512f", "avx512bw"}, ",".join(filter(None, (features, "-avx512f")))
    registers = {_MASKS: "avx512bw" in has, "v": "avx512f" in has, "x": "avx" in has}

    def copy(found: re.Match[str]) -> str:
        return found[0] if registers[found["register"]] else _anywhere(found)

    return _COPY.sub(copy, text), features


def _anywhere(copy: re.Match[str]) -> str:
    """The same value; still hidden if it is a mask of loads."""
    new, lanes, old = copy["new"], copy["lanes"], copy["old"]
    if copy["register"] != _MASKS:
        return f"{new} = freeze {copy['type']} {old}"
    return (
        f"{new}.from = bitcast <{lanes} x i1> {old} to i{lanes}\n"
        f'  {new}.bits = call i{lanes} asm "", "=r,0"(i{lanes} {new}.from)\n'
        f"  {new} = bitcast i{lanes} {new}.bits to <{lanes} x i1>"
    )


__all__ = ["adapted"]
