"""Sets up each library as its users would for speed, with one function per library.

    run, output = onnxruntime(job, spec)        run() computes once, output() gives the result as an array

A job is a `suite.case.Case` or a `networks.Network`: it gives a torch module, ONNX bytes and a NumPy
function. All work that can be done beforehand (packing weights, binding inputs, compiling) is done in these
functions and not timed. All libraries compute in float32 with the spec's number of threads, and may use
Winograd's convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from peers import local_peers, onnx_files, pytorch
from peers.environments import PACKAGES
from peers.peer_spec import Array, Ready, Skip, Spec, cache_folder

__all__ = ["KINDS", "PACKAGES", "RUNTIMES", "Array", "Ready", "Skip", "Spec", "cache_folder"]

# libraries that run whole networks, in the order of the table's columns
RUNTIMES: dict[str, Callable[[Any, Spec], Ready]] = {
    "torch": pytorch.torch,
    "inductor": pytorch.inductor,
    "zentorch": pytorch.zentorch,
    "onnxruntime": onnx_files.onnxruntime,
    "openvino": onnx_files.openvino,
    "xla": pytorch.xla,
    "iree": onnx_files.iree,
    "tinygrad": onnx_files.tinygrad,
    "ncnn": onnx_files.ncnn,
    "mnn": onnx_files.mnn,
    "litert": pytorch.litert,
    "executorch": pytorch.executorch,
}
# the autoschedulers in Halide's wheel; its Anderson2021 is only for graphics cards
AUTOSCHEDULERS = ("Mullapudi2016", "Adams2019", "Li2018")
KINDS: dict[str, Callable[[Any, Spec], Ready]] = {
    "ours": local_peers.ours,
    "backend": pytorch.backend,
    "numpy": local_peers.numpy,
    "tvm": local_peers.tvm,
    "reference": local_peers.reference,
    "jax": local_peers.jax,
    "numba": local_peers.numba,
    "opt_einsum": pytorch.opt_einsum,
    **{f"halide-{a.lower()}": partial(local_peers.halide, a) for a in AUTOSCHEDULERS},
    **RUNTIMES,
}
