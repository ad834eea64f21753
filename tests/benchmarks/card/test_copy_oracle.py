"""The simulator's `cp.async` against an oracle that was written from NVIDIA's manual alone (warp_oracle.py).

Drawn scripts copy, wait, read and write; what the manual leaves undefined has to be a fault.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
import warp_oracle as oracle
from simulated_card.ptx_memory import CardFault
from warp_lines import Array, execute, words

OWN = 128  # bytes of shared memory that each thread has for itself
COPY = "cp.async.{cache}.shared.global [%r11+{at}], [%rd11+{source}], {size}{used};"
PLACES = f"""
    mov.u32 %r10, tile;
    mad.lo.s32 %r11, %r1, {OWN}, %r10;
    mul.wide.u32 %rd10, %r1, {OWN};
    add.s64 %rd11, %rd3, %rd10;
    """


class Script:
    """Lines of PTX, and the state of each thread's copies by the oracle."""

    def __init__(self, rng: random.Random, threads: int) -> None:
        self.rng, self.threads = rng, threads
        self.image = words(rng, threads * OWN // 4).tobytes()
        self.copies = [oracle.Copies(bytearray(self.own(n))) for n in range(threads)]
        self.guards = words(rng, threads, 2)
        self.wanted: list[list[int]] = [[] for _ in range(threads)]
        self.lines = [PLACES]
        self.taken = 0

    def own(self, thread: int) -> bytes:
        return self.image[OWN * thread : OWN * thread + OWN]

    def guard(self) -> tuple[str, list[int]]:
        """A guard for the next line, and the threads that pass it."""
        if self.rng.random() < 0.6:
            return "", list(range(self.threads))
        bit = self.rng.randrange(32)
        self.lines.append(f"and.b32 %r12, $in0, {1 << bit}; setp.ne.u32 %p1, %r12, 0;")
        return "@%p1 ", [n for n in range(self.threads) if int(self.guards[n, 0]) >> bit & 1]

    def copy(self, at: int) -> None:
        """A copy of any size. A part of it may be zeros; the size of the copied part is an immediate, a
        register, or the whole."""
        size = self.rng.choice((4, 8, 16))
        at, source = at // size * size, self.rng.randrange(OWN // size) * size
        guard, who = self.guard()
        part, used, cache = self.rng.random(), [size] * self.threads, "ca"
        text = ""
        if part < 0.25:
            fixed = self.rng.randrange(size + 1)
            text, used = f", {fixed}", [fixed] * self.threads
        elif part < 0.5:
            self.lines.append(f"and.b32 %r13, $in1, {size - 1};")
            text, used = ", %r13", [int(x) & size - 1 for x in self.guards[:, 1]]
        if size == 16 and self.rng.random() < 0.5:
            cache = "cg"
        self.lines.append(guard + COPY.format(cache=cache, at=at, source=source, size=size, used=text))
        for n in who:
            self.copies[n].copy(at, self.own(n)[source : source + size], size, used[n])

    def commit(self) -> None:
        guard, who = self.guard()
        self.lines.append(guard + "cp.async.commit_group;")
        for n in who:
            self.copies[n].commit()

    def wait(self, left: int | None) -> None:
        guard, who = self.guard()
        kind = "wait_all" if left is None else f"wait_group {left}"
        self.lines.append(f"{guard}cp.async.{kind};")
        for n in who:
            self.copies[n].wait_all() if left is None else self.copies[n].wait(left)

    def read(self, at: int) -> None:
        self.lines.append(f"ld.shared.u32 $out{self.taken}, [%r11+{at}];")
        self.taken += 1
        for n in range(self.threads):
            self.wanted[n].append(struct.unpack("<I", self.copies[n].read(at, 4))[0])

    def write(self, at: int) -> None:
        self.lines.append(f"st.shared.u32 [%r11+{at}], $in1;")
        for n in range(self.threads):
            self.copies[n].write(at, struct.pack("<I", int(self.guards[n, 1])))

    def is_settled(self, line: int) -> bool:
        """Whether no thread's copy to these 16 bytes is under way."""
        try:
            return all(c.read(line, 16) for c in self.copies)
        except oracle.Undefined:
            return False

    def found(self) -> Array:
        return execute("\n".join(self.lines) + "\n", self.guards, self.taken, self.image)


def drawn(rng: random.Random, careful: bool) -> tuple[Script, bool]:
    """A script, and whether all its steps have a defined meaning. A careful script has only such steps."""
    script = Script(rng, 32)
    for _ in range(rng.randrange(6, 26)):
        lines = [at for at in range(0, OWN, 16) if not careful or script.is_settled(at)]
        step = rng.choice(("copy", "copy", "copy", "commit", "commit", "wait", "read", "read", "write"))
        try:
            if step == "commit":
                script.commit()
            elif step == "wait" or not lines:
                script.wait(rng.choice((None, 0, 0, 1, 1, 2, 3)))
            else:
                getattr(script, step)(rng.choice(lines) + rng.choice((0, 4, 8, 12)))
        except oracle.Undefined:
            return script, False
    return script, True


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_copies_of_drawn_scripts(first: int) -> None:
    """Copies, some of them partly zeros, in groups of each thread; they are read after they have arrived."""
    for seed in range(first, first + 20):
        script, has_meaning = drawn(random.Random(seed), careful=True)
        assert has_meaning
        assert script.found().tolist() == script.wanted, "\n".join(script.lines)


def test_copies_that_are_touched_on_their_way() -> None:
    """The last step is undefined; the steps before it are defined."""
    scripts = (drawn(random.Random(seed), careful=False) for seed in range(200))
    bad = [script for script, has_meaning in scripts if not has_meaning][:60]
    assert len(bad) == 60
    for script in bad:
        with pytest.raises(CardFault):
            script.found()


CROSS = (
    PLACES
    + """
    cp.async.ca.shared.global [%r11], [%rd11], 4;
    {first}
    {second}
    xor.b32 %r20, %r1, {other};
    mad.lo.s32 %r20, %r20, 128, %r10;
    ld.shared.u32 $out0, [%r20];
    """
)


@pytest.mark.parametrize("other", [1, 32])
def test_another_threads_copy_is_there_after_its_wait_and_a_barrier(other: int) -> None:
    """Reads in the same warp and in another one. A thread waits only for its own copies, so the wait comes
    before the barrier."""
    rng = random.Random(other)
    image, given = words(rng, 64 * OWN // 4).tobytes(), np.zeros((64, 1), np.uint32)
    good = CROSS.format(first="cp.async.wait_all;", second="bar.sync 0;", other=other)
    found = execute(good, given, 1, image)
    assert found[:, 0].tolist() == [struct.unpack_from("<I", image, (n ^ other) * OWN)[0] for n in range(64)]
    for first, second in (
        ("cp.async.wait_all;", ""),
        ("bar.sync 0;", "cp.async.wait_all;"),
        ("cp.async.commit_group;", "bar.sync 0;"),
        ("cp.async.wait_group 0;", "bar.sync 0;"),  # nothing is committed
    ):
        with pytest.raises(CardFault):
            execute(CROSS.format(first=first, second=second, other=other), given, 1, image)


@pytest.mark.parametrize(
    ("lines", "who"),  # that may read their own copy; %p1: even threads
    [
        ("cp.async.commit_group; cp.async.wait_group 0;", "all"),
        ("@%p1 cp.async.commit_group; cp.async.wait_group 0;", "even"),
        ("cp.async.commit_group; @%p1 cp.async.commit_group; cp.async.wait_group 1;", "even"),
        ("cp.async.commit_group; @%p1 cp.async.wait_group 0;", "even"),
        ("@%p1 cp.async.wait_all;", "even"),
        ("cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 3;", "nobody"),
        ("cp.async.commit_group; cp.async.wait_group 1;", "nobody"),
    ],
)
def test_groups_are_a_threads_own(lines: str, who: str) -> None:
    image, given = words(random.Random(9), 32 * OWN // 4).tobytes(), np.zeros((32, 1), np.uint32)
    start = PLACES + "and.b32 %r30, %r1, 1; setp.eq.u32 %p1, %r30, 0; setp.ne.u32 %p2, %r30, 0;\n"
    start += COPY.format(cache="ca", at=0, source=4, size=4, used="") + lines + "mov.u32 $out0, 0;\n"
    for parity, reads in enumerate(("@%p1", "@%p2")):
        script = f"{start} {reads} ld.shared.u32 $out0, [%r11];\n"
        if who == "all" or (who == "even" and parity == 0):
            found = execute(script, given, 1, image)[parity::2, 0].tolist()
            assert found == [struct.unpack_from("<I", image, n * OWN + 4)[0] for n in range(parity, 32, 2)]
        else:
            with pytest.raises(CardFault):
                execute(script, given, 1, image)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_copy_to_a_place_that_is_not_aligned_is_a_fault(size: int) -> None:
    image, given = bytes(32 * OWN), np.zeros((32, 1), np.uint32)
    for at, source in ((size // 2, 0), (0, size // 2)):
        line = COPY.format(cache="ca", at=at, source=source, size=size, used="")
        with pytest.raises(CardFault):
            execute(PLACES + line + "cp.async.wait_all;\nmov.u32 $out0, 0;\n", given, 1, image)
