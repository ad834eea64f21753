"""autotensor, NumPy, XLA, numba, Halide, and what TVM's MetaSchedule left: who needs no model converted."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers.peer_spec import Array, Ready, Skip, Spec


def ours(job: Any, spec: Spec) -> Ready:
    """autotensor; the output array is given, as with the other runtimes' bound outputs."""
    ready: Ready = job.ours(spec)
    return ready


def numpy(job: Any, spec: Spec) -> Ready:
    """NumPy as a person would write it."""
    function = job.numpy_function()
    if function is None:
        raise Skip("not one NumPy expression")
    return function, function


def tvm(job: Any, spec: Spec) -> Ready:
    """What TVM's MetaSchedule found (metaschedule.py), outputs given. Its own packages come last in line."""
    import sys

    if spec.file not in sys.path:
        sys.path.append(spec.file)
    library, arrays, take = job.tvm(spec.threads)
    import tvm as package

    function = package.runtime.load_module(str(library))["main"]
    given = [package.runtime.tensor(a) for a in arrays]
    out = package.runtime.empty(take.shape, "float32")
    keep = (*given, out)

    def run(_: object = keep) -> None:
        function(*keep)

    def output() -> Array:
        run()
        return np.asarray(take(out.numpy()))

    return run, output


def reference(job: Any, spec: Spec) -> Ready:
    """A program by NumPy in float64."""
    return (lambda: None), job.reference


def jax(job: Any, spec: Spec) -> Ready:
    """A program by XLA: its array functions, compiled as one; results are new arrays, as always there."""
    import jax as package
    import jax.numpy as jnp

    given = [jnp.asarray(a) for a in job.inputs]
    function = package.jit(lambda *arrays: job.program.arrays(jnp, *arrays))

    def run() -> object:
        return package.block_until_ready(function(*given))

    return run, lambda: job.flat(run())


def numba(job: Any, spec: Spec) -> Ready:
    """A program by numba, in the loops that a person wrote or would write."""
    if job.program.numba is None:
        from peers.numba_programs import compiled

        function = compiled(job.dag, spec.threads)
    else:
        function = job.program.numba()
    return (lambda: function(*job.inputs)), lambda: job.flat(function(*job.inputs))


def halide(autoscheduler: str, job: Any, spec: Spec) -> Ready:
    """A program by Halide with one of its autoschedulers, the same stages and inputs where they lie."""
    from peers.halide_programs import fastest

    run = fastest(job.dag, autoscheduler, spec.threads, job.inputs)
    return run, lambda: job.flat(run())
