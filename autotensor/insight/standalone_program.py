"""Kernel source as a program that runs without autotensor: the source, the launches, and host code in Python.

    python harness_of.py      needs only NumPy and pyopencl (or CuPy); prints each kernel's microseconds

It is meant for reading, profiling, or trying a change by hand. Nothing of autotensor is imported.
"""

from __future__ import annotations

import json

from autotensor.runtime.device.nvrtc_library import OPTIONS
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.launches import LaunchSpec, launches

_OPENCL = """\
import pyopencl as cl

platform = next(p for p in cl.get_platforms() if "Oclgrind" not in p.name)
context = cl.Context(platform.get_devices()[:1])
queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
program = cl.Program(context, SOURCE).build("-cl-std=CL1.2")
flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
memory = [cl.Buffer(context, flags, hostbuf=a) for a in arrays.values()]


def launch(kernel, args, grid, block, shared):
    k = cl.Kernel(program, kernel)
    k.set_args(*(memory[n] for n in args))
    event = cl.enqueue_nd_range_kernel(queue, k, [g * b for g, b in zip(grid, block)], block)
    event.wait()
    return (event.profile.end - event.profile.start) * 1e-3


def fetch(n, array):
    cl.enqueue_copy(queue, array, memory[n])
"""

_CUDA = """\
import cupy
from cupy.cuda import driver, nvrtc

capability = int(cupy.cuda.Device().compute_capability)
known = max(a for a in nvrtc.getSupportedArchs() if a <= capability)
own = known // 10 == capability // 10  # else the driver compiles for the card
program = nvrtc.createProgram(SOURCE, "kernels.cu", (), ())
try:  # not by RawModule: it would make zeros of the smallest numbers
    nvrtc.compileProgram(program, (f"--gpu-architecture={'sm' if own else 'compute'}_{known}", *OPTIONS))
except nvrtc.NVRTCError:
    raise SystemExit(nvrtc.getProgramLog(program))
module = cupy.cuda.Module()
module.load(nvrtc.getCUBIN(program) if own else nvrtc.getPTX(program))
memory = [cupy.asarray(a) for a in arrays.values()]


def launch(kernel, args, grid, block, shared):
    k = module.get_function(kernel)
    if shared > 48 << 10:
        driver.funcSetAttribute(k.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    first.record()
    k(grid, block, tuple(memory[n] for n in args), shared_mem=shared)
    last.record()
    last.synchronize()
    return cupy.cuda.get_elapsed_time(first, last) * 1e3


def fetch(n, array):
    array[...] = memory[n].get()
"""

_HOSTS = {"opencl": _OPENCL, "cuda": f"OPTIONS = {OPTIONS!r}\n{_CUDA}"}

_PAGE = '''\
"""{name}, for {target}: kernels and a host to run them."""
import numpy as np

SOURCE = r"""
{source}"""

rng = np.random.default_rng(0)


def made(shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


arrays = {{  # in the order of the launches' numbers
{arrays}
}}
{host}
LAUNCHES = [  # kernel, arguments, blocks, threads of a block, bytes of dynamic shared memory
{launches}
]

for _ in range(2):  # the first time compiles
    for spec in LAUNCHES:
        print(f"{{spec[0]}}: {{launch(*spec):.1f}} us")
for n, (name, array) in enumerate(arrays.items()):
    if name in {outputs}:
        fetch(n, array)
        print(name, array.shape, array.dtype, array.reshape(-1)[:8])
'''


def harness(artifact: Artifact) -> str:
    """The program. `artifact` is one kernel program for a device, not a linked model."""
    kind = artifact.target.kind
    (source,) = artifact.objects
    arrays = [
        f"    {json.dumps(a.name)}: made({a.shape!r}, {a.dtype.replace('bool', 'bool_')!r}),  # {a.role}"
        for a in artifact.args
    ]
    specs = (*launches(artifact, "prepare"), *launches(artifact, "run"))
    return _PAGE.format(
        name=artifact.name,
        target=kind,
        source=source.decode(),
        arrays="\n".join(arrays),
        host=_HOSTS[kind],
        launches="\n".join(f"    {_call(s)}," for s in specs),
        outputs=repr([a.name for a in artifact.role("output")]),
    )


def _call(s: LaunchSpec) -> str:
    return repr((s.kernel, [n for n, _ in s.args], s.grid, s.block, s.dynamic_shared_bytes))
