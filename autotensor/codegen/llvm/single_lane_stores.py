"""Masked stores of one lane become scalar stores, because LLVM would store neighbouring bytes, too.

    call void @llvm.masked.store.v16i8.p0(<16 x i8> %v, ptr align 1 %p, <16 x i1> <i1 true, i1 false, …>)
        ──▶   %lane.0 = extractelement <16 x i8> %v, i64 0
              %lane.0.at = getelementptr i8, ptr %p, i64 0
              store i8 %lane.0, ptr %lane.0.at, align 1

If %v is cut from wider integers, and the mask is a constant, LLVM 22 stores the whole wider element (`vmovss`
for this byte). AVX-512 has such stores; other processors do not. This runs after LLVM's passes, which make
constants of masks.
"""

from __future__ import annotations

import re
from itertools import count

STORES = "@llvm.masked.store."
_STORE = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.v\d+i(?P<bits>\d+)\.p0\("
    r"(?P<vector><\d+ x i\d+>) (?P<value>.+?), "
    r"ptr (?:(?!getelementptr)[a-z_]+(?:\(\d+\)| \d+)? )*(?P<place>.+), "
    r"<\d+ x i1> <(?P<mask>[^<>]*)>\).*$",
    re.MULTILINE,
)


def scalar_stores(text: str) -> str:
    """The text of a module, in which every masked store of exactly one lane of integers is a scalar store."""
    number = count()

    def written(store: re.Match[str]) -> str:
        lanes = [lane.strip() for lane in store["mask"].split(",")]
        if lanes.count("i1 true") != 1 or lanes.count("i1 false") != len(lanes) - 1:
            return store[0]
        lane, name, one = lanes.index("i1 true"), f"%lane.{next(number)}", f"i{store['bits']}"
        return (
            f"  {name} = extractelement {store['vector']} {store['value']}, i64 {lane}\n"
            f"  {name}.at = getelementptr {one}, ptr {store['place']}, i64 {lane}\n"
            f"  store {one} {name}, ptr {name}.at, align {int(store['bits']) // 8}"
        )

    return _STORE.sub(written, text)
