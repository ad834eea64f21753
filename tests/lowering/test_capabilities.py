"""The table of requests that each target does, or refuses in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from gpu_cases import CASES

from autotensor import te
from autotensor.base import plugins
from autotensor.base.errors import AutotensorError
from autotensor.base.plugins import PLUGINS, TargetPlugin
from autotensor.base.target import Target, parse
from autotensor.codegen import backend
from autotensor.codegen.dot_instructions import available
from autotensor.ir.printer import to_text
from autotensor.lowering.capabilities import HONOURED, MARKS
from autotensor.lowering.pipeline import lower
from autotensor.schedule.axis import Mark
from autotensor.schedule.primitives.pragma import PRAGMAS
from autotensor.schedule.primitives.tensorize import Tensorize
from autotensor.schedule.schedule import Schedule, create_schedule
from autotensor.schedule.trace import Trace

TARGETS = (
    "llvm", "interp", "opencl", "opencl -device=gpu", "cuda -arch=sm_80", "cuda -arch=sm_75", "vdlc", "bare",
)  # fmt: skip
PLAIN = ("llvm", "interp", "vdlc", "bare")  # without threads
AS_LOOP = "would run axis '{}' of stage 'B' as a plain loop. Leave the step out; it honours no marks."
NO_RING = "keeps nothing of stage 'S' from one iteration to the next. Leave the step out."
NO_MEMORY = "has no shared memory to keep stage 'A.shared:B' in. Use scope \"local\"."
NO_MMA = (
    "has no instruction 'mma.m16n8k8.tf32' for axis 'k.1' of stage 'C.local'. Leave the step out; it has "
)
NO_COPY = "has no instruction 'vdlc.dma_copy2d' for axis 'i' of stage 'B'. Leave the step out; it has "
DOTS = ", ".join(dot.name for dot in available(parse("llvm"))) or "none"
MMAS = "mma.m16n8k8.tf32, mma.m16n8k16.f16, mma.m16n8k16.bf16."


def doubled(ask: Callable[[Schedule], object]) -> Callable[[bool], Schedule]:
    def made(asked: bool) -> Schedule:
        A = te.placeholder((8, 8), name="A")
        s = create_schedule(te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B", axis_names=("i", "j")))
        if asked:
            ask(s)
        return s

    return made


def near(scope: str) -> Callable[[Schedule], object]:
    return lambda s: s.cache_read("A", scope, ["B"]).compute_at(s["B"], "i")


def sliding(asked: bool) -> Schedule:
    A = te.placeholder((9, 8), name="A")
    S = te.compute((9, 8), lambda i, j: A[i, j] * 2.0, name="S", axis_names=("i", "j"))
    B = te.compute((8, 8), lambda i, j: S[i, j] + S[i + 1, j], name="B", axis_names=("i", "j"))
    s = create_schedule(B)
    s[B].split("i", factor=4)
    s[S].compute_at(s[B], "i.1")
    if asked:
        s[S].store_at(s[B], "i.0")
    return s


def mma(asked: bool) -> Schedule:
    s = CASES["tensor_cores_tf32"]()
    return s if asked else Schedule(s.dag, Trace(tuple(t for t in s.trace.steps if type(t) is not Tensorize)))


def summed(key: str, value: int = 1) -> Callable[[bool], Schedule]:
    """For each place, the sum of the numbers up to it; the other numbers are not needed."""

    def made(asked: bool) -> Schedule:
        A, k = te.placeholder((9, 9), name="A"), te.reduce_axis(9, name="k")
        twice = te.compute((9, 9), lambda i, j: A[i, j] * 2.0, name="S", axis_names=("i", "j"))
        before = lambda i: te.sum(te.select(k <= i, twice[i, k], 0.0), axis=k)  # noqa: E731
        s = create_schedule(te.compute((9,), before, name="P", axis_names=("i",)))
        if asked and key == "skip_unread":
            s["S"].pragma("j", key, value)
        elif asked:
            s["P"].pragma("k", key, value)
        return s

    return made


ASKED: dict[str, tuple[Callable[[bool], Schedule], dict[str, str]]] = {  # who refuses, and how
    "parallel": (
        doubled(lambda s: s["B"].parallel("i")),
        dict.fromkeys(("vdlc", "bare"), AS_LOOP.format("i")),
    ),
    "vectorize": (
        doubled(lambda s: s["B"].vectorize("j")),
        dict.fromkeys(("vdlc", "bare"), AS_LOOP.format("j")),
    ),
    "unroll": (doubled(lambda s: s["B"].unroll("j")), dict.fromkeys(("vdlc", "bare"), AS_LOOP.format("j"))),
    "bind": (
        doubled(lambda s: s["B"].bind("i", "threadIdx.x")),
        dict.fromkeys(PLAIN, "has no thread axes; use parallel('i')."),
    ),
    "shared memory": (doubled(near("shared")), dict.fromkeys(("llvm", "vdlc", "bare"), NO_MEMORY)),
    "store_at": (
        sliding,
        dict.fromkeys((t for t in TARGETS if t not in ("llvm", "interp")), NO_RING),
    ),
    "mma": (
        mma,
        {
            **dict.fromkeys(PLAIN, "has no "),  # threads, or memory that they share
            **dict.fromkeys(("opencl", "opencl -device=gpu", "cuda -arch=sm_75"), NO_MMA + "none."),
        },
    ),
    "copy": (
        doubled(lambda s: s["B"].tensorize("i", "vdlc.dma_copy2d")),
        {
            **dict.fromkeys(("opencl", "opencl -device=gpu", "cuda -arch=sm_75", "bare"), NO_COPY + "none."),
            "llvm": f"{NO_COPY}{DOTS}.",
            "cuda -arch=sm_80": NO_COPY + MMAS,
        },
    ),
    **{key: (summed(key), {}) for key in PRAGMAS if key != "auto_unroll_max_step"},
    "auto_unroll_max_step": (
        summed("auto_unroll_max_step", 9),
        dict.fromkeys(("vdlc", "bare"), "unrolls no loops of stage 'P'. Leave auto_unroll_max_step out."),
    ),
}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that does not say which marks it implements."""
    brought = TargetPlugin("bare", lambda options: Target("bare"), backend.compile, backend.compile)
    monkeypatch.setattr(plugins, "_REGISTERED", {**plugins._REGISTERED, "bare": brought})


def made(s: Schedule, target: Target) -> str:
    """The program that the backend gets, and the text that it writes."""
    program = lower(s.state, target)
    if target.kind in ("interp", *PLUGINS.own, "bare"):
        return to_text(program)
    return to_text(program) + str(backend.compile(program, target, name="k").texts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("asked", ASKED)
def test_it_is_done_or_refused(asked: str, target: str) -> None:
    make, refusals = ASKED[asked]
    if target not in refusals:
        assert made(make(True), parse(target)) != made(make(False), parse(target))
        return
    with pytest.raises(AutotensorError, match=re.escape(refusals[target])) as caught:
        lower(make(True).state, parse(target))
    assert str(caught.value).count("\n") == 0


def test_the_table_is_whole() -> None:
    assert set(MARKS) == set(Mark) - {Mark.SERIAL}
    assert set(MARKS.values()) < set(HONOURED)
    assert set(ASKED) == {*HONOURED, *PRAGMAS, "mma", "copy"}


def test_a_plug_in_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    able = TargetPlugin(
        "able",
        lambda options: Target("able"),
        backend.compile,
        backend.compile,
        honours=frozenset({"parallel", "unroll"}),
    )
    monkeypatch.setitem(plugins._REGISTERED, "able", able)
    lower(ASKED["parallel"][0](True).state, parse("able"))
    lower(ASKED["auto_unroll_max_step"][0](True).state, parse("able"))
    said = "vectorize: target 'able' would run axis 'j' of stage 'B' as a plain loop. Leave the step out; it "
    with pytest.raises(AutotensorError, match=re.escape(f"{said}honours parallel, unroll.")):
        lower(ASKED["vectorize"][0](True).state, parse("able"))


def test_blocks_are_divided_once() -> None:
    s = ASKED["parallel"][0](True)
    s["B"].bind("j", "blockIdx.x")
    said = "parallel: loop 'B:i' would run in turn: it is not outermost, or another loop has the blocks."
    for target in ("cuda", "opencl", "opencl -device=gpu"):
        with pytest.raises(AutotensorError, match=re.escape(said)):
            lower(s.state, parse(target))
