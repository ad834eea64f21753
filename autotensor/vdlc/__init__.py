"""vdlc: a simulated accelerator, the smallest complete example of a target that a plug-in brings.

    f = at.build(s, [A, B, C], target="vdlc -overlap=yes")
    c = f(a, b)
    print(f.report)                       cycles, instructions, how busy the units were

`code.py` defines the instructions and makes programs from loops, `machine.py` runs them. This file has the
interface of a target. Start with `docs/add-a-target.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from autotensor.base.errors import ScheduleError, TargetError
from autotensor.base.plugins import TargetPlugin
from autotensor.base.target import Target
from autotensor.ir.func import Program, Scope
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.simulated import Hosted
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.vdlc.code import COPY, GEMM, TILE, Code, Instruction, Loop, intrinsics, select
from autotensor.vdlc.machine import Machine

DEFAULTS = {"-overlap": "no", "-write-back": "behind", "-inp-buffer": "1024", "-acc-buffer": "512"}
CHOICES = {"-overlap": ("no", "yes"), "-write-back": ("behind", "inside")}


def target(options: Sequence[str]) -> Target:
    """The target of the options `-overlap=yes` (copies run while the matrix unit works), `-write-back=inside`
    (a copy of results to memory moves into the loop before it), `-inp-buffer=BYTES` and `-acc-buffer=BYTES`.
    Raises TargetError for other options."""
    chosen = dict(DEFAULTS)
    for option in options:
        name, _, value = option.partition("=")
        if name not in chosen or not (value in CHOICES[name] if name in CHOICES else value.isdigit()):
            known = ", ".join(f"{n}={'|'.join(CHOICES.get(n, ('BYTES',)))}" for n in DEFAULTS)
            raise TargetError(f"target option {option!r} is unknown.", fix=f"Known: {known}.")
        chosen[name] = value
    return Target("vdlc", features=",".join(f"{n}={v}" for n, v in chosen.items()))


def compile(program: Program, target: Target, *, name: str, asm: bool = False, cache: Any = None) -> Artifact:
    """The program as instructions, in JSON. Raises CodegenError if the accelerator cannot run it."""
    code = select(program)
    if _options(target)["-write-back"] == "inside":
        code = msgspec.structs.replace(code, body=write_back_inside(code.body, frozenset(code.pads)))
    _machine(target).check(code)
    args = tuple(ArgSpec(b.name, role.value, b.shape, str(b.dtype)) for b, role in program.args)
    texts = {**program.texts, "vdlc": str(code)}
    return Artifact(name, target, name, None, args, (msgspec.json.encode(code),), texts=texts)


def write_back_inside(
    body: Sequence[Loop | Instruction], pads: frozenset[str]
) -> tuple[Loop | Instruction, ...]:
    """Moves every copy to memory that follows a loop to the end of that loop's body."""
    out: list[Loop | Instruction] = []
    for step in body:
        last = out[-1] if out else None
        if isinstance(step, Loop):
            out.append(Loop(step.var, step.extent, write_back_inside(step.body, pads)))
        elif step.name == COPY and step.regions[0].buffer not in pads and isinstance(last, Loop):
            out[-1] = Loop(last.var, last.extent, (*last.body, step))
        else:
            out.append(step)
    return tuple(out)


def open(artifact: Artifact, threads: int | None = None) -> Hosted:
    """The function that runs on the simulated machine; its `report` has the cycles of the last call."""
    code, machine = msgspec.json.decode(artifact.objects[0], type=Code), _machine(artifact.target)
    return Hosted(artifact, lambda arrays: machine.run(code, arrays))


def default(dag: ComputeDAG, target: Target) -> Trace:
    """Tiles of 8x8, operands by DMA. Raises ScheduleError for anything but a sum of A[k, y] * B[k, x]."""
    stage = dag.stages[-1]
    if len(dag.stages) > 1 or len(stage.axes) != 2 or len(stage.reduce_axes) != 1:
        raise ScheduleError("vdlc computes one product of transposed matrices: A[k, y] * B[k, x].")
    s, out = Schedule(dag), stage.name
    near = s.cache_write(out, Scope.LOCAL.value)
    (y, x), (k,) = (a.name for a in stage.axes), (a.name for a in stage.reduce_axes)
    (yo, yi), (xo, xi) = s[out].split(y, factor=TILE), s[out].split(x, factor=TILE)
    s[out].reorder(yo, xo, yi, xi)
    s[near].compute_at(s[out], xo)
    ko, ki = s[near].split(k, factor=TILE)
    s[near].reorder(ko, ki, y, x)
    for buffer in dict.fromkeys(stage.reads()):
        local = s.cache_read(buffer.name, Scope.LOCAL.value, [near])
        s[local].compute_at(s[near], ko)
        s[local].tensorize(local.op.axis[0], COPY)
    s[near].tensorize(ki, GEMM)
    s[out].tensorize(yi, COPY)
    return s.trace


def _options(target: Target) -> dict[str, str]:
    return dict(text.split("=", 1) for text in target.features.split(","))


def _machine(target: Target) -> Machine:
    o = _options(target)
    sizes = Machine(inp_buffer=int(o["-inp-buffer"]), acc_buffer=int(o["-acc-buffer"]))
    return replace(sizes, overlap=o["-overlap"] == "yes")


PLUGIN = TargetPlugin("vdlc", target, compile, open, intrinsics=intrinsics(), default=default)
