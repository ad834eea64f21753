"""Innermost loops of a listing, found by its jumps and not by the order of its blocks.

    LBB0_3:  ends a tile … je LBB0_4                 loops: 1 2 3 (head 1) and 2 (head 2)
    LBB0_1:  starts a tile                           innermost: 2, which has no other head inside
    LBB0_2:  sums … jne LBB0_2 … jmp LBB0_3

LLVM puts blocks where jumps are cheap. The block that ends a tile often stands before the loop that sums it.
By the order of the blocks alone, 3 and 1 would be an innermost loop, and a register that is saved once for
each tile would be a spill in this loop.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"(?:^|\s)#(?!-?\d).*|//.*")  # #16 is a number in ARM's syntax
_LABEL = re.compile(r"^([\w.$@\"]+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b\.\w+|b|cbn?z|tbn?z)\s+(?:.*,\s*)?([.\w$]+)\s*$")
# the code after these instructions does not run next
_LEAVES = re.compile(r"^\s+(?:ret\w*|jmp\w*|br?|ud2|brk)(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions that run one after the other."""

    lines: tuple[str, ...]
    following: tuple[int, ...]  # the blocks that may run next


def blocks(asm: str) -> tuple[Block, ...]:
    """A listing cut at labels and after jumps, without comments and directives."""
    bodies: list[list[str]] = [[]]
    labels: dict[str, int] = {}
    for raw in asm.splitlines():
        line = _COMMENT.sub("", raw).rstrip()
        label = _LABEL.match(line)
        if label:
            if bodies[-1]:
                bodies.append([])
            labels[label.group(1)] = len(bodies) - 1
        elif line.strip() and not line.strip().startswith("."):
            bodies[-1].append(line)
            if _JUMP.match(line) or _LEAVES.match(line):
                bodies.append([])
    return tuple(Block(tuple(body), _following(n, body, labels)) for n, body in enumerate(bodies))


def _following(n: int, body: Sequence[str], labels: dict[str, int]) -> tuple[int, ...]:
    if not body:
        return ()
    jump = _JUMP.match(body[-1])
    behind = () if _LEAVES.match(body[-1]) else (n + 1,)
    return (*behind, labels[jump.group(1)]) if jump and jump.group(1) in labels else behind


def innermost(listing: Sequence[Block]) -> tuple[tuple[int, ...], ...]:
    """The blocks of every loop with no other loop in it. They begin with the loop's head and follow the order
    of the listing."""
    loops = _loops(listing)
    out = []
    for head, body in sorted(loops.items()):
        if not any(h in body for h in loops if h != head):
            order = sorted(body)
            first = order.index(head)
            out.append((*order[first:], *order[:first]))
    return tuple(out)


def _loops(listing: Sequence[Block]) -> dict[int, set[int]]:
    """Head → blocks of its loop: all blocks from which jumps lead back to the head."""
    before: defaultdict[int, list[int]] = defaultdict(list)
    for n, block in enumerate(listing):
        for f in block.following:
            before[f].append(n)
    loops: defaultdict[int, set[int]] = defaultdict(set)
    for n, head in _backward(listing):
        body, pending = loops[head] | {head}, [n]
        while pending:
            at = pending.pop()
            if at not in body:
                body.add(at)
                pending += before[at]
        loops[head] = body
    return dict(loops)


def _backward(listing: Sequence[Block]) -> list[tuple[int, int]]:
    """(block, head) of every jump backward: every path from the start to `block` has passed `head`."""
    found: list[tuple[int, int]] = []
    seen: set[int] = set()
    for start in range(len(listing)):  # a function's first block stands before its other blocks
        # each block of the current path → its following blocks that are still to be visited
        path: dict[int, list[int]] = {}
        if start not in seen:
            path[start] = list(listing[start].following)
        while path:
            at, rest = next(reversed(path.items()))
            seen.add(at)
            if not rest:
                del path[at]
                continue
            to = rest.pop()
            if to in path:
                found.append((at, to))
            elif to not in seen:
                path[to] = list(listing[to].following)
    return found
