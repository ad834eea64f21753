"""A card's threads as lanes of arrays: their execution, branches, barriers, `cp.async`.

    launch(kernel, memory, [address, …], grid, block)

Lanes are the threads of as many blocks as fit, side by side. 32 neighbours are a warp. The lanes with the
smallest program counter run together to the end of their basic block. So threads that took different branches
meet again where the branches join. A lane at a barrier waits until all running threads of its block have
come. A `cp.async` arrives as late as PTX allows: when its thread waits for its group.

No existing emulator could be used: GPGPU-Sim and GPU Ocelot are C++ programs that must be built with CUDA's
toolkit or LLVM, and GPGPU-Sim does not support `mma.sync` (accel-sim/accel-sim-framework#4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from simulated_card import ptx_warps
from simulated_card.ptx_kernels import block_ends, granule_of, unread_registers
from simulated_card.ptx_memory import CardFault, GlobalMemory, SharedMemory
from simulated_card.ptx_text import Instruction, Kernel
from simulated_card.ptx_values import BITS, TYPES, NotSimulated, Operation, operation, special

Array = np.ndarray[Any, Any]
Step = Callable[["Lanes"], None]
Extents = tuple[int, int, int]

WARP = 32
BIT = np.uint64(1) << np.arange(WARP, dtype=np.uint64)  # the bit of each lane of a warp
LANES = 1 << 14  # threads side by side, so many that NumPy spends its time in its loops
DONE = np.iinfo(np.int64).max
_LDMATRIX = re.compile(r"sync\.aligned\.m8n8\.x[124](\.trans)?\.shared\.b16")
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*(?:\+\s*(-?\d+))?\s*\]")


def launch(
    kernel: Kernel,
    memory: GlobalMemory,
    params: Sequence[int],
    grid: Extents,
    block: Extents,
    dynamic: int = 0,
) -> int:
    """Runs a grid. Returns the number of instructions that its lanes ran. Raises CardFault or
    NotSimulated."""
    steps = [compiled(i) for i in kernel.code]
    threads = -(-prod(block) // WARP) * WARP
    side = max(1, LANES // threads)
    total, ran = prod(grid), 0
    with np.errstate(all="ignore"):
        for first in range(0, total, side):
            numbers = np.arange(first, min(total, first + side))
            ran += Lanes(kernel, memory, params, grid, block, numbers, dynamic).run(steps)
    return ran


class Lanes:
    """The threads of some blocks of a grid."""

    def __init__(
        self,
        kernel: Kernel,
        memory: GlobalMemory,
        params: Sequence[int],
        grid: Extents,
        block: Extents,
        numbers: Array,
        dynamic: int,
    ) -> None:
        """numbers: the indices of the blocks."""
        size = prod(block)
        padded = -(-size // WARP) * WARP
        self.kernel, self.memory = kernel, memory
        self.unread = unread_registers(kernel)
        self.count = padded * len(numbers)
        self.block = np.repeat(np.arange(len(numbers)), padded)
        self.thread = np.tile(np.arange(padded), len(numbers)).astype(np.int32)
        x, y, _ = block
        gx, gy, _ = grid
        n, t = numbers.repeat(padded), self.thread
        self.registers: dict[str, Array] = {
            "%tid.x": t % x, "%tid.y": t // x % y, "%tid.z": t // (x * y),
            "%ctaid.x": n % gx, "%ctaid.y": n // gx % gy, "%ctaid.z": n // (gx * gy),
            "%laneid": t % WARP, "%warpid": t // WARP,
            **{f"%ntid.{d}": np.full(self.count, v) for d, v in zip("xyz", block, strict=True)},
            **{f"%nctaid.{d}": np.full(self.count, v) for d, v in zip("xyz", grid, strict=True)},
        }  # fmt: skip
        self.registers = {name: v.astype(np.uint32) for name, v in self.registers.items()}
        self.params = dict(zip(kernel.params, params, strict=True))
        self.shared = SharedMemory(len(numbers), kernel.shared_bytes + dynamic, granule_of(kernel))
        self.local = np.full((self.count, -(-max(1, kernel.local_bytes) // 16) * 16), 0xFF, np.uint8)
        self.pc = np.where(self.thread < size, 0, DONE).astype(np.int64)
        self.waits = np.zeros(self.count, np.bool_)  # whether each lane waits at a barrier
        self.at = self.pc.copy()  # the program counter of the barrier
        self.now: Array = np.arange(self.count)  # the lanes that run now
        self.whole = False  # whether these are all lanes
        self._sent: list[tuple[Array, Array, Array, Array, Array]] = []  # lanes, group, address, data, thread
        self._group = np.zeros(self.count, np.int64)  # number of committed groups of each lane

    def run(self, steps: Sequence[Step]) -> int:
        """Runs until all lanes are done. Returns the number of steps of all lanes."""
        code, ends = self.kernel.code, block_ends(self.kernel)
        ran = 0
        while True:
            ready = np.where(self.waits, DONE, self.pc)
            pc = int(ready.min())
            if pc == DONE:
                if not self.waits.any():
                    return ran
                self._release()
                continue
            self.now = np.flatnonzero(ready == pc)
            self.whole = len(self.now) == self.count
            end = ends[pc]
            self.pc[self.now] = end
            for k in range(pc, end):
                ran += len(self.now)
                try:
                    steps[k](self)
                except CardFault as fault:
                    raise CardFault(fault.code, f"{fault.what} ({self.kernel.name}: {code[k]})") from fault
                except NotSimulated as missing:
                    raise NotSimulated(f"{self.kernel.name}: {missing}") from missing

    # -- values -------------------------------------------------------------------------------------------

    def read(self, operand: str, t: str) -> Array:
        """The running lanes' values of an operand, as a type."""
        dtype = TYPES[t]
        if operand in self.registers:
            found = self.registers[operand]
            found = found if self.whole else found[self.now]
            if dtype.kind == "b":
                return found
            bits = BITS[dtype.itemsize * 8]
            return (found if found.dtype == bits else found.astype(bits)).view(dtype)
        return np.full(len(self.now), self._constant(operand, dtype), dtype)

    def _constant(self, operand: str, dtype: np.dtype[Any]) -> Any:
        if operand.startswith(("0f", "0F")):
            return (
                np.uint32(int(operand[2:], 16)).view(np.float32).astype(dtype)
                if dtype.kind == "f"
                else int(operand[2:], 16)
            )
        if operand.startswith(("0d", "0D")):
            return np.uint64(int(operand[2:], 16)).view(np.float64)
        if operand in self.kernel.shared:
            return self.kernel.shared[operand]
        if operand in self.kernel.local:
            return self.kernel.local[operand]
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", operand):
            value = int(operand.rstrip("U"), 0)
            return (
                value
                if dtype.kind in "fb"
                else np.array(value & (1 << dtype.itemsize * 8) - 1, np.uint64)
                .astype(BITS[dtype.itemsize * 8])
                .view(dtype)
            )
        if operand.startswith("%"):  # a register that was never written; PTX leaves its value open
            return np.zeros((), dtype)
        raise NotSimulated(f"operand {operand} is not known")

    def write(self, register: str, values: Array) -> None:
        """Writes a register of the running lanes. The rest of a wider register is filled with zeros, or with
        the sign."""
        if register == "_":
            return
        if values.dtype.kind != "b":
            bits = self._width(register)
            if values.dtype.itemsize * 8 != bits:
                kind = "i" if values.dtype.kind == "i" else "u"
                values = values.view(f"{kind}{values.dtype.itemsize}").astype(f"{kind}{bits // 8}")
            values = values.view(BITS[bits])
        if self.whole:
            self.registers[register] = np.ascontiguousarray(values)
            return
        old = self.registers.get(register)
        new = np.zeros(self.count, values.dtype) if old is None else old.copy()
        new[self.now] = values
        self.registers[register] = new

    def _width(self, register: str) -> int:
        return self.kernel.widths.get(register) or self.kernel.widths[register.rstrip("0123456789")]

    def address(self, operand: str) -> Array:
        found = _ADDRESS.fullmatch(operand)
        if found is None:
            raise NotSimulated(f"address {operand} is not known")
        base, offset = found[1], int(found[2] or 0)
        bits = 64 if base not in self.registers else self.registers[base].dtype.itemsize * 8
        return self.read(base, f"u{bits}").astype(np.int64) + offset

    def under(self, guard: str, step: Step) -> None:
        """Runs a step for the lanes whose predicate holds."""
        now, whole = self.now, self.whole
        wanted = self.read(guard.lstrip("!"), "pred") != guard.startswith("!")
        if not wanted.all():
            self.now, self.whole = now[wanted], False
        if len(self.now):
            step(self)
        self.now, self.whole = now, whole

    def warps(self, what: str) -> None:
        """Raises CardFault unless all lanes of each running warp run."""
        if (
            len(self.now) % WARP
            or (self.now.reshape(-1, WARP)[:, 0] % WARP).any()
            or (np.diff(self.now.reshape(-1, WARP)) != 1).any()
        ):
            raise CardFault("divergent warp", f"{what} is run by some lanes of a warp")

    # -- barriers and copies ------------------------------------------------------------------------------

    def arrive(self) -> None:
        self.waits[self.now] = True
        self.at[self.now] = self.pc[self.now]

    def _release(self) -> None:
        """Releases the barriers, when all lanes that are not done have come to one."""
        for block in np.unique(self.block[self.waits]):
            if len(np.unique(self.at[self.waits & (self.block == block)])) > 1:
                raise CardFault(
                    "divergent barrier", f"threads of a block of {self.kernel.name} wait at two barriers"
                )
        self.shared.epoch += 1
        self.waits[:] = False

    def send(self, to: Array, data: Array) -> None:
        now = self.now
        place = self.shared.send(to, data.shape[1], self.block[now], self.thread[now])
        self._sent.append((now, self._group[now], place, data, self.thread[now]))

    def commit(self) -> None:
        self._group[self.now] += 1

    def wait(self, left: int | None) -> None:
        """Lets the running lanes' copies arrive, except the newest `left` groups. None: all copies, also
        those that are not committed."""
        here = np.zeros(self.count, np.bool_)
        here[self.now] = True
        kept = []
        for lanes, group, place, data, thread in self._sent:
            due = here[lanes] & ((group < self._group[lanes] - (left or 0)) | (left is None))
            if due.any():
                self.shared.land(place[due], data[due], thread[due])
            if not due.all():
                kept.append((lanes[~due], group[~due], place[~due], data[~due], thread[~due]))
        self._sent = kept


# -- instructions --------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def compiled(i: Instruction) -> Step:
    """The effect of an instruction on the running lanes, as a function."""
    try:
        step = _step(i)
    except NotSimulated as missing:
        step = _refused(missing)  # raises only when the instruction is reached, which may never happen
    if i.guard and not i.op.startswith("bra"):
        return lambda lanes: lanes.under(i.guard, step)
    return step


def _refused(missing: NotSimulated) -> Step:
    def step(_: Lanes) -> None:
        raise missing

    return step


def _step(i: Instruction) -> Step:
    name, _, rest = i.op.partition(".")
    words = rest.split(".")
    match name:
        case "ld" | "st":
            return _access(i, name, words)
        case "bra":
            return lambda lanes: _branch(lanes, i)
        case "ret" | "exit":
            return lambda lanes: lanes.pc.__setitem__(lanes.now, DONE)
        case "bar" if i.op == "bar.sync" and i.operands == ("0",):
            return Lanes.arrive
        case "cp":
            return _copy(i, words)
        case "shfl":
            return lambda lanes: _shuffle(lanes, i, words[1])
        case "ldmatrix" if _LDMATRIX.fullmatch(rest):
            return lambda lanes: _ldmatrix(lanes, i, words)
        case "mma":
            return lambda lanes: _mma(lanes, i, words[2], words[6], words[5])
        case "mov" if any(isinstance(o, tuple) for o in i.operands):
            return lambda lanes: _pack(lanes, i, words[-1])
    return _arithmetic(i, special(i.op) or operation(i.op))


def _arithmetic(i: Instruction, o: Operation) -> Step:
    into, *given = i.operands
    if len(given) != len(o.operands):
        raise NotSimulated(f"{i} has {len(given)} operands")

    def step(lanes: Lanes) -> None:
        found = o.function(*(lanes.read(str(g), t) for g, t in zip(given, o.operands, strict=True)))
        lanes.write(str(into), np.asarray(found, TYPES[o.result]))

    return step


def _branch(lanes: Lanes, i: Instruction) -> None:
    to, now = lanes.kernel.labels[str(i.operands[0])], lanes.now
    if i.guard:
        now = now[lanes.read(i.guard.lstrip("!"), "pred") != i.guard.startswith("!")]
    lanes.pc[now] = to


def _pack(lanes: Lanes, i: Instruction, t: str) -> None:
    """Packs registers into a wider one, the low part first, or unpacks it."""
    into, source = i.operands
    if isinstance(into, tuple):
        whole = (
            lanes.read(str(source), t).view(BITS[TYPES[t].itemsize * 8 // len(into)]).reshape(-1, len(into))
        )
        for n, register in enumerate(into):
            lanes.write(register, np.ascontiguousarray(whole[:, n]))
    else:
        part = f"b{TYPES[t].itemsize * 8 // len(source)}"
        parts = np.stack([lanes.read(s, part) for s in source], axis=1)
        lanes.write(into, np.ascontiguousarray(parts).view(TYPES[t]).reshape(-1))


def _access(i: Instruction, name: str, words: list[str]) -> Step:
    space, t = words[0], words[-1]
    size = TYPES[t].itemsize
    where, what = (i.operands[1], i.operands[0]) if name == "ld" else i.operands
    registers = what if isinstance(what, tuple) else (what,)
    width = size * len(registers)

    def step(lanes: Lanes) -> None:
        if space == "param":
            value = lanes.params[str(where).strip("[] ")]
            lanes.write(registers[0], np.full(len(lanes.now), value, np.uint64).astype(BITS[size * 8]))
            return
        at = lanes.address(str(where))
        if width > size and (at % width).any():
            raise CardFault("cudaErrorMisalignedAddress", f"an access of {width} bytes is not aligned")
        for n, register in enumerate(registers):
            place = at + n * size
            if name == "ld" and register in lanes.unread:
                continue  # NVRTC loads three floats and the next four bytes in one access
            if name == "ld":
                lanes.write(register, _load(lanes, space, place, TYPES[t]))
            else:
                _store(lanes, space, place, lanes.read(register, t))

    return step


def _load(lanes: Lanes, space: str, at: Array, dtype: np.dtype[Any]) -> Array:
    match space:
        case "global":
            return lanes.memory.load(at, dtype)
        case "shared":
            return lanes.shared.load(at, dtype, lanes.block[lanes.now], lanes.thread[lanes.now])
        case "local":
            return lanes.local.view(dtype)[lanes.now, at // dtype.itemsize]
    raise NotSimulated(f"memory {space} is not simulated")


def _store(lanes: Lanes, space: str, at: Array, values: Array) -> None:
    match space:
        case "global":
            lanes.memory.store(at, values)
        case "shared":
            lanes.shared.store(at, values, lanes.block[lanes.now], lanes.thread[lanes.now])
        case "local":
            lanes.local.view(values.dtype)[lanes.now, at // values.itemsize] = values
        case _:
            raise NotSimulated(f"memory {space} is not simulated")


def _copy(i: Instruction, words: list[str]) -> Step:
    """cp.async and its groups. If the copy gives a number of bytes to read, the rest of its size is filled
    with zeros."""
    match words[1]:
        case "commit_group":
            return Lanes.commit
        case "wait_group":
            return lambda lanes: lanes.wait(int(str(i.operands[0])))
        case "wait_all":
            return lambda lanes: lanes.wait(None)
    by_predicate = any(str(o).startswith("%p") for o in i.operands[3:])  # `ignore-src`
    if words[1] not in ("ca", "cg") or words[2:4] != ["shared", "global"] or by_predicate:
        raise NotSimulated(f"instruction {i} is not simulated")
    size = int(str(i.operands[2]))

    def step(lanes: Lanes) -> None:
        to, of = lanes.address(str(i.operands[0])), lanes.address(str(i.operands[1]))
        if (of % size).any():
            raise CardFault("cudaErrorMisalignedAddress", f"a copy of {size} bytes is not aligned")
        given = lanes.read(str(i.operands[3]), "u32") if len(i.operands) > 3 else np.full(len(to), size)
        if (given > size).any():
            raise CardFault("copy too large", f"a copy of {size} bytes is to take {given.max()} of them")
        data = np.zeros((len(to), size), np.uint8)
        part = 1 if (given % 4).any() else 4
        for n in range(0, size, part):
            lines = np.flatnonzero(given > n)
            if len(lines):
                found = lanes.memory.load(of[lines] + n, TYPES[f"u{8 * part}"])
                data[lines, n : n + part] = found.view(np.uint8).reshape(-1, part)
        lanes.send(to, data)

    return step


def _shuffle(lanes: Lanes, i: Instruction, mode: str) -> None:
    into, _, fits = str(i.operands[0]).partition("|")
    a, b, c, members = (lanes.read(str(o), "u32") for o in i.operands[1:5])
    wide = np.zeros((4, lanes.count), np.uint32)
    wide[:3, lanes.now], wide[3, lanes.now] = (a, b, c), 1
    a, b, c, runs = wide.reshape(4, -1, WARP)
    bits = (runs * BIT).sum(axis=1)  # one number for each warp
    # lanes that have ended are not waited for
    there = ((lanes.pc != DONE).reshape(-1, WARP) * BIT).sum(axis=1)
    if ((members & there[lanes.now // WARP]) != bits[lanes.now // WARP]).any():
        raise CardFault("divergent warp", "shfl.sync names other lanes than those that run it")
    found, inside, source = ptx_warps.shuffle(mode, a, b, c)
    if (np.take_along_axis(runs, source, axis=1)[runs != 0] == 0).any():
        raise CardFault("divergent warp", "shfl.sync takes from a lane that does not run it")
    lanes.write(into, found.reshape(-1)[lanes.now])
    if fits:
        lanes.write(fits, inside.reshape(-1)[lanes.now])


def _ldmatrix(lanes: Lanes, i: Instruction, words: list[str]) -> None:
    lanes.warps("ldmatrix")
    registers = i.operands[0]
    count = len(registers)
    named = np.concatenate([w[: 8 * count] for w in np.arange(len(lanes.now)).reshape(-1, WARP)])
    at, who = lanes.address(str(i.operands[1]))[named], lanes.now[named]
    rows = lanes.shared.load_rows(at, lanes.block[who], lanes.thread[who])
    found = ptx_warps.ldmatrix(rows.reshape(-1, count, 8, 8), "trans" in words)
    for n, register in enumerate(registers):
        lanes.write(register, np.ascontiguousarray(found[:, n].reshape(-1)))


def _mma(lanes: Lanes, i: Instruction, shape: str, kind: str, result: str) -> None:
    lanes.warps("mma.sync")
    if f"{shape}.{kind}" not in ptx_warps.FRAGMENTS or result != "f32":
        raise NotSimulated(f"instruction {i.op} is not simulated")
    a, b, c = (
        np.stack([lanes.read(r, t).reshape(-1, WARP) for r in i.operands[n]], axis=1)
        for n, t in ((1, "u32"), (2, "u32"), (3, "f32"))
    )
    found = ptx_warps.mma(shape, kind, a, b, c)
    for n, register in enumerate(i.operands[0]):
        lanes.write(register, np.ascontiguousarray(found[:, n].reshape(-1)))


__all__ = ["CardFault", "Lanes", "NotSimulated", "compiled", "launch"]
