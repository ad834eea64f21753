"""Lines of PTX, run by every thread on words of its own: `$in0`, … are given, `$out0`, … are taken."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
from simulated_card.ptx_lanes import launch
from simulated_card.ptx_memory import GlobalMemory
from simulated_card.ptx_text import parse

Array = np.ndarray[Any, Any]
TILE = 8192  # bytes of shared memory, at its byte 0
HEAD = f"""
.version 7.8
.target sm_80
.address_size 64
.visible .entry lanes(.param .u64 lanes_param_0, .param .u64 lanes_param_1, .param .u64 lanes_param_2)
{{
    .reg .pred %p<64>;
    .reg .b32 %r<64>;
    .reg .b32 %a<64>;
    .reg .b32 %d<64>;
    .reg .b64 %rd<64>;
    .shared .align 128 .b8 tile[{TILE}];
    ld.param.u64 %rd1, [lanes_param_0];
    ld.param.u64 %rd2, [lanes_param_1];
    ld.param.u64 %rd3, [lanes_param_2];
    mov.u32 %r1, %tid.x;
"""


def execute(lines: str, given: Array, taken: int, image: bytes = b"") -> Array:
    """Words that each thread leaves [threads, taken], given [threads, n] of them and shared memory's bytes.

    The lines have %rd3 for the image's address, and %r1 for the thread.
    """
    threads, n = given.shape
    memory = GlobalMemory(1 << 26)
    places = []
    for data in (given, np.zeros((threads, taken), np.uint32), np.frombuffer(image, np.uint8)):
        at, held = memory.allocate(max(data.nbytes, 16))
        held[: data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        places.append((at, held))
    text = HEAD + _fetch(n) + _spread(len(image), threads) + lines + _leave(taken) + "ret;\n}\n"
    text = re.sub(r"\$in(\d+)", r"%a\1", re.sub(r"\$out(\d+)", r"%d\1", text))
    launch(parse(text)["lanes"], memory, [at for at, _ in places], (1, 1, 1), (threads, 1, 1))
    return places[1][1][: threads * taken * 4].view(np.uint32).reshape(threads, taken)


def _fetch(n: int) -> str:
    loads = (f"ld.global.u32 %a{k}, [%rd4+{4 * k}];" for k in range(n))
    return "\n".join([f"mul.wide.u32 %rd4, %r1, {4 * n};", "add.s64 %rd4, %rd1, %rd4;", *loads, ""])


def _leave(taken: int) -> str:
    stores = (f"st.global.u32 [%rd5+{4 * k}], %d{k};" for k in range(taken))
    return "\n".join([f"mul.wide.u32 %rd5, %r1, {4 * taken};", "add.s64 %rd5, %rd2, %rd5;", *stores, ""])


def _spread(size: int, threads: int) -> str:
    """The image into shared memory, by all threads; a barrier."""
    if not size:
        return ""
    each = 4 * threads
    assert size % each == 0
    moves = (f"ld.global.u32 %r5, [%rd6+{at}]; st.shared.u32 [%r3+{at}], %r5;" for at in range(0, size, each))
    return "\n".join(
        [
            "shl.b32 %r2, %r1, 2;",
            "mov.u32 %r4, tile;",
            "add.s32 %r3, %r4, %r2;",
            "cvt.u64.u32 %rd6, %r2;",
            "add.s64 %rd6, %rd3, %rd6;",
            *moves,
            "bar.sync 0;",
            "",
        ]
    )


def words(rng: random.Random, *shape: int) -> Array:
    return np.random.default_rng(rng.getrandbits(32)).integers(0, 1 << 32, shape, dtype=np.uint32)
