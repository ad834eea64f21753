"""Contestants that need no converted model: autotensor, NumPy, XLA, numba, Halide, and results of TVM's
MetaSchedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from peers.peer_spec import Array, Ready, Skip, Spec


def ours(job: Any, spec: Spec) -> Ready:
    """autotensor. The output array is given, like the bound outputs of other runtimes."""
    ready: Ready = job.ours(spec)
    return ready


def numpy(job: Any, spec: Spec) -> Ready:
    """NumPy as a person would write it."""
    function = job.numpy_function()
    if function is None:
        raise Skip("not one NumPy expression")
    return function, function


def tvm(job: Any, spec: Spec) -> Ready:
    """MetaSchedule's result (metaschedule.py), with given outputs. Its packages come last on Python's
    path."""
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
    """A program computed by NumPy in float64."""
    return (lambda: None), job.reference


def jax(job: Any, spec: Spec) -> Ready:
    """A program computed by XLA: its array functions are compiled as one. Results are new arrays, as always
    with XLA."""
    import jax as package
    import jax.numpy as jnp

    given = [jnp.asarray(a) for a in job.inputs]
    function = package.jit(lambda *arrays: job.program.arrays(jnp, *arrays))

    def run() -> object:
        return package.block_until_ready(function(*given))

    return run, lambda: job.flat(run())


def numba(job: Any, spec: Spec) -> Ready:
    """A program computed by numba, in the loops that a person wrote or would write."""
    if job.program.numba is None:
        from peers.numba_programs import compiled

        function = compiled(job.dag, spec.threads)
    else:
        function = job.program.numba()
    return (lambda: function(*job.inputs)), lambda: job.flat(function(*job.inputs))


def halide(autoscheduler: str, job: Any, spec: Spec) -> Ready:
    """A program computed by Halide with one of its autoschedulers, with the same stages, and inputs that are
    not copied."""
    from peers.halide_programs import fastest

    run = fastest(job.dag, autoscheduler, spec.threads, job.inputs)
    return run, lambda: job.flat(run())
