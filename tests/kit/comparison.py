"""Runs one computation under one trace in every possible way; all results must agree.

    check(dag, trace)     raises Different, with expressions and trace as text to paste, if they differ

The right result is the interpreter's on the empty trace, which is itself compared with te/reference. It is
compared with the interpreter on the scheduled loops, the interpreter on the program after all passes, and
native code with 1, 2, 3 and 16 threads. Inputs are small integers, so that results are equal bit for bit;
then normal floats within the tolerance of te/tolerance. Outputs and workspaces start as NaN, guard bytes
surround the outputs. Memory ends behind the inputs: a read there ends the process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from fences import fenced

from autotensor.base.target import Target, host
from autotensor.codegen import backend
from autotensor.codegen.interp.interpreter import run_program
from autotensor.compiler import te_text
from autotensor.ir.expr import Binary, Call, Const, Load, Op, Select
from autotensor.ir.func import PrimFunc, Program
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.verify import Level, check_bounds, verify
from autotensor.ir.visit import any_node, collect
from autotensor.lowering.nest.nest import build_program
from autotensor.lowering.pipeline import Pass, lower
from autotensor.runtime import module as runtime_module
from autotensor.runtime.module import Module
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.reference import evaluate, random_inputs
from autotensor.te.tolerance import tolerance
from autotensor.te.workload import Workload

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
THREADS = (1, 2, 3, 16)
GUARD = 64  # bytes on either side of an output
GUARD_BYTE = 0x5C


class Different(AssertionError):
    """Two ways to compute the same thing give different results, or one of them failed."""


def explain(dag: ComputeDAG, trace: Trace) -> str:
    """Everything that is needed to repeat the comparison."""
    return "\n".join(
        [
            te_text(dag),
            "",
            trace.to_python() or "(empty trace)",
            "",
            f"dag = Workload.from_text({Workload.of(dag).text!r}).dag   # canonical names",
            f"trace = Trace.from_json({trace.renamed(dag.canonical()[1]).to_json()!r})",
        ]
    )


@contextmanager
def blaming(what: str, dag: ComputeDAG, trace: Trace) -> Iterator[None]:
    """Turns every error inside into Different, with the explanation."""
    try:
        yield
    except Exception as e:
        raise Different(f"{what}: {type(e).__name__}: {e}\n\n{explain(dag, trace)}") from e


def check(dag: ComputeDAG, trace: Trace, *, seed: int = 0, native: bool = True) -> None:
    """Raises Different unless every way agrees. native: compile too."""
    inputs = random_inputs(dag, seed, "integer")
    truth = expected(dag, inputs)
    with blaming("replay", dag, trace):
        state = trace.replay(dag)
        loops = build_program(state)
        for func in (*loops.prepare, *loops.run):
            verify(func, Level.LOOP, "nest")
    with blaming("interpreter on the loops", dag, trace):
        for threads in (1, 3):
            agree(dag, inputs, truth, interpreted(dag, loops, inputs, threads))
    with blaming("lowering", dag, trace):
        final = lower(state, hook=verified)
    with blaming("final program", dag, trace):
        protected(final)
    with blaming("interpreter on the final program", dag, trace):
        for threads in (1, 2):
            agree(dag, inputs, truth, interpreted(dag, final, inputs, threads))
    if native:
        check_native(dag, trace, final, inputs, truth, seed)


def check_native(
    dag: ComputeDAG, trace: Trace, final: Program, inputs: Arrays, truth: Arrays, seed: int
) -> None:
    with blaming("compiling", dag, trace), poisoned_workspaces():
        run = Native(dag, final, host())
        normal = random_inputs(dag, seed + 1)
        exact = evaluate(dag, normal, accumulate=np.float64)
        for threads in THREADS:
            with blaming(f"native code, {threads} threads, integers", dag, trace):
                agree(dag, inputs, truth, run(inputs, threads))
        if all(b.dtype.is_float for b in (*dag.inputs, *dag.outputs)):
            with blaming("native code, normal floats", dag, trace):
                near(dag, normal, exact, run(normal, 2))


def verified(p: Pass, func: PrimFunc) -> None:
    """A hook of `lower`: what the pass promises holds."""
    verify(func, p.makes, p.name)


def protected(program: Program) -> None:
    """Loads on one side of a Select are masked or in bounds, because machines evaluate both sides."""
    for func in (*program.prepare, *program.run):
        bare = [x for x in collect(func.body, Select) for x in _bare_loads(x)]
        if bare:
            free = transform(func.body, _without_selects)
            unsure = {a.index for a in check_bounds(replace(func, body=free))}
            for load in bare:
                if load.indices[0] in unsure:
                    raise Different(f"load {load} in a Select of {func.name!r} has no mask.")


def _bare_loads(e: Select) -> list[Load]:
    sides = (*collect(e.then, Load), *collect(e.otherwise, Load))
    return [x for x in sides if x.mask is None and not any_node(x.indices[0], lambda n: isinstance(n, Load))]


def _without_selects(n: Node) -> Node | None:
    """Both sides are evaluated, as if their values were added."""
    if isinstance(n, Select) and not n.dtype.is_bool:
        return Binary(Op.ADD, n.then, n.otherwise)
    return None


def expected(dag: ComputeDAG, inputs: Arrays) -> Arrays:
    """The results of the empty trace in the interpreter, checked against the reference."""
    with blaming("interpreter on the empty trace", dag, Trace()):
        found = interpreted(dag, build_program(Trace().replay(dag)), inputs, 1, strict=True)
        agree(dag, inputs, evaluate(dag, inputs), found)
    return found


def interpreted(
    dag: ComputeDAG, program: Program, inputs: Arrays, threads: int, strict: bool = False
) -> Arrays:
    arrays = {n: a.copy() for n, a in inputs.items()}
    arrays.update({b.name: fresh(b) for b in dag.outputs})
    run_program(program, arrays, nthreads=threads, strict=strict)
    unchanged(inputs, arrays)
    return {b.name: arrays[b.name] for b in dag.outputs}


class Native:
    """The compiled program, called with guarded outputs, and with inputs that end where memory ends."""

    def __init__(self, dag: ComputeDAG, program: Program, target: Target) -> None:
        self.dag = dag
        self.module = Module(backend.compile(program, target, name="test"), threads=1)

    def __call__(self, inputs: Mapping[str, Array], threads: int) -> Arrays:
        given = {n: fenced(a) for n, a in inputs.items()}
        module = self.module.bind(**{n: a for n, a in given.items() if n in self.dag.constants})
        module.threads = threads
        guarded = {b.name: _guarded(b) for b in self.dag.outputs}
        outputs = {n: view for n, (_, view) in guarded.items()}
        everything = {**given, **outputs}
        module(*(everything[a.name] for a in module.args))
        unchanged(inputs, given)
        for name, (raw, view) in guarded.items():
            end = GUARD + view.nbytes
            if not ((raw[:GUARD] == GUARD_BYTE).all() and (raw[end:] == GUARD_BYTE).all()):
                raise Different(f"bytes around output {name!r} were overwritten.")
        return {n: view.copy() for n, view in outputs.items()}


def _guarded(b: Any) -> tuple[Array, Array]:
    raw = np.full(b.bytes + 2 * GUARD, GUARD_BYTE, np.uint8)
    view = raw[GUARD : GUARD + b.bytes].view(b.dtype.numpy).reshape(b.shape)
    view[...] = fresh(b)
    return raw, view


def fresh(b: Any) -> Array:
    """The contents of an output before it is written."""
    t = b.dtype.numpy
    return np.full(
        b.shape, np.nan if b.dtype.is_float else True if b.dtype.is_bool else np.iinfo(t).min + 77, t
    )


@contextmanager
def poisoned_workspaces() -> Iterator[None]:
    """New workspaces and prepared arrays start as NaN."""
    original: Callable[..., Array] = runtime_module.aligned_empty

    def poisoned(*args: Any) -> Array:
        array = original(*args)
        array.reshape(-1).view(np.uint8)[:] = 0xFF
        return array

    runtime_module.aligned_empty = poisoned
    try:
        yield
    finally:
        runtime_module.aligned_empty = original


def unchanged(inputs: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    for name, array in inputs.items():
        if array.tobytes() != after[name].tobytes():  # NaN, too
            raise Different(f"input {name!r} was changed.")


def agree(dag: ComputeDAG, inputs: Arrays, want: Arrays, got: Arrays) -> None:
    """Equal if the computation is exact on small integers, else within tolerance."""
    if is_exact(dag):
        same({b.name: want[b.name] for b in dag.outputs}, got)
    else:
        near(dag, inputs, want, got)


def is_exact(dag: ComputeDAG) -> bool:
    """Whether small integers stay integers: there are no divisions and no functions. Scans must have no
    fractions, because their powers need too many bits."""

    def rounds(n: Node) -> bool:
        if dag.carried and isinstance(n, Const) and n.dtype.is_float and n.value != int(n.value):
            return True
        return (isinstance(n, Call) and n.name != "abs") or (isinstance(n, Binary) and n.op is Op.DIV)

    return not any(any_node(b, rounds) for s in dag.stages for b in s.bodies)


def same(want: Arrays, got: Arrays) -> None:
    """Equal bit for bit, except for the sign of zero."""
    for name, array in want.items():
        if not np.array_equal(array, got[name], equal_nan=array.dtype.kind == "f"):
            bad = np.argwhere(array != got[name])
            at = tuple(int(x) for x in bad[0])
            raise Different(
                f"{name}{list(at)} is {got[name][at]}, not {array[at]} ({len(bad)} of {array.size} wrong)."
            )


def near(dag: ComputeDAG, inputs: Arrays, want: Arrays, got: Arrays) -> None:
    """Within the tolerance of te/tolerance."""
    for name, allowed in tolerance(dag, inputs, want).items():
        exact, found = want[name].astype(np.float64), got[name].astype(np.float64)
        finite = np.isfinite(exact)
        with np.errstate(invalid="ignore"):
            wrong = ~(np.abs(found - exact) <= allowed) & finite
        wrong |= ~finite & ~((found == exact) | (np.isnan(found) & np.isnan(exact)))
        if wrong.any():
            at = tuple(int(x) for x in np.argwhere(wrong)[0])
            raise Different(f"{name}{list(at)} is {found[at]}, not {exact[at]} within {allowed[at]:.1e}.")


# -- traces as data ----------------------------------------------------------------------------------------


def check_texts(dag: ComputeDAG, trace: Trace) -> None:
    """JSON, canonical names and Python give the trace back; under canonical names it gives the same loops."""
    with blaming("texts", dag, trace):
        assert Trace.from_json(trace.to_json()) == trace, "JSON changes it"
        canonical, names = dag.canonical()
        there = trace.renamed(names)
        back = there.renamed(inverse(dag, names))
        assert back == trace, f"canonical names and back gives\n{back}\nvia\n{there}"
        again = Schedule(dag)
        exec(trace.to_python(), {"s": again})
        assert again.trace == trace, f"the Python text gives\n{again.trace}"
        assert again.state == trace.replay(dag), "the Python text gives another state"
        one = shape_of(lower(trace.replay(dag)))
        two = shape_of(lower(Trace.from_json(there.to_json()).replay(canonical)))
        assert one == two, "under canonical names the loops differ"


def inverse(dag: ComputeDAG, names: Mapping[str, str]) -> dict[str, str]:
    """The map from canonical names back to the DAG's own."""
    out: dict[str, str] = {}
    for old, new in names.items():
        stage, dot, axis = old.partition(".")
        if dot:
            out[f"{names[stage]}.{new}"] = axis
        else:
            out[new] = old
    return out


def shape_of(program: Program) -> str:
    """The program's text with all names replaced by numbers in order of appearance."""
    import re

    seen: dict[str, str] = {}
    text = "\n".join(str(f) for f in (*program.prepare, *program.run))
    return re.sub(r"[A-Za-z_]\w*", lambda m: seen.setdefault(m[0], f"n{len(seen)}"), text)


def main(dag: ComputeDAG, trace: Trace) -> None:
    """For a pasted example: says what differs."""
    try:
        check(dag, trace)
        check_texts(dag, trace)
    except Different as e:
        print(e, file=sys.stderr)
    else:
        print("all agree")
