"""autotensor: write operators with te.compute, search for fast schedules, run whole models on the winners.

    import autotensor as at
    from autotensor import te

Public names are loaded when first used, so that `import autotensor` is quick and `at.load` needs only NumPy
and llvmlite.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from autotensor.base.absent_names import AbsentModules, absent

__version__ = "0.1.0"

if TYPE_CHECKING:
    from autotensor import te
    from autotensor.api.c_library import write_c
    from autotensor.api.comparing.compare import compare
    from autotensor.api.from_onnx import OnnxModel, from_onnx
    from autotensor.api.from_torch import from_torch
    from autotensor.api.kernels import build, lower, tune
    from autotensor.api.loading import by_shape, load
    from autotensor.api.log_handle import log
    from autotensor.api.model_compiling import compile_model
    from autotensor.api.model_tuning import tune_model
    from autotensor.api.models import plan_model
    from autotensor.api.open_models import open_graph
    from autotensor.api.training import training_step
    from autotensor.api.verifying.verify import verify
    from autotensor.autodiff.reverse_mode import gradients
    from autotensor.base.errors import AutotensorError
    from autotensor.base.target import Target
    from autotensor.graph.build import call, input, ops, parameter
    from autotensor.graph.ir import Graph
    from autotensor.imperative.traced_functions import compile
    from autotensor.schedule.schedule import create_schedule
    from autotensor.search.options import TuneOptions

# public name → module that defines it
_HOMES = {
    "AutotensorError": "autotensor.base.errors",
    "Graph": "autotensor.graph.ir",
    "OnnxModel": "autotensor.api.from_onnx",
    "Target": "autotensor.base.target",
    "TuneOptions": "autotensor.search.options",
    "build": "autotensor.api.kernels",
    "by_shape": "autotensor.api.loading",
    "call": "autotensor.graph.build",
    "compare": "autotensor.api.comparing.compare",
    "compile": "autotensor.imperative.traced_functions",
    "compile_model": "autotensor.api.model_compiling",
    "create_schedule": "autotensor.schedule.schedule",
    "from_onnx": "autotensor.api.from_onnx",
    "from_torch": "autotensor.api.from_torch",
    "gradients": "autotensor.autodiff.reverse_mode",
    "input": "autotensor.graph.build",
    "load": "autotensor.api.loading",
    "log": "autotensor.api.log_handle",
    "lower": "autotensor.api.kernels",
    "open_graph": "autotensor.api.open_models",
    "ops": "autotensor.graph.build",
    "parameter": "autotensor.graph.build",
    "plan_model": "autotensor.api.models",
    "training_step": "autotensor.api.training",
    "tune": "autotensor.api.kernels",
    "tune_model": "autotensor.api.model_tuning",
    "verify": "autotensor.api.verifying.verify",
    "write_c": "autotensor.api.c_library",
}

__all__ = [
    "AutotensorError",
    "Graph",
    "OnnxModel",
    "Target",
    "TuneOptions",
    "__version__",
    "build",
    "by_shape",
    "call",
    "compare",
    "compile",
    "compile_model",
    "create_schedule",
    "from_onnx",
    "from_torch",
    "gradients",
    "input",
    "load",
    "log",
    "lower",
    "open_graph",
    "ops",
    "parameter",
    "plan_model",
    "te",
    "training_step",
    "tune",
    "tune_model",
    "verify",
    "write_c",
]


_SEARCH = "one search serves all: at.tune([A, B, C], trials=64), then at.build([A, B, C])"
_MODELS = (
    "models are read by at.from_onnx or at.from_torch, or written with at.input, at.ops and at.call, "
    "and compiled by at.compile_model (docs/onnx.md, docs/pytorch.md, docs/add-a-model.md)"
)
_ARRAYS = "pass NumPy arrays: f(a, b, c); a kernel runs on the target that it was built for"
_PASSES = 'there are no passes to configure; options belong to the target: target="llvm -threads=2"'
_PYTHON = "a kernel calls no Python function; call it between two kernels"
_TE = (  # functions that TVM had in its first module
    *("all", "any", "comm_reducer", "compute", "exp", "if_then_else", "log", "max_value", "min_value"),
    *("placeholder", "reduce_axis", "scan", "sigmoid", "sqrt", "sum", "tanh", "thread_axis", "var"),
)
_RAISED = "errors are at.AutotensorError, or one of its kinds in autotensor.base.errors"
_ELSEWHERE = {  # names of TVM → advice for autotensor
    **{name: f"write te.{name}, after from autotensor import te" for name in _TE},
    "auto_scheduler": _SEARCH,
    "autotvm": _SEARCH,
    "meta_schedule": _SEARCH,
    "relay": _MODELS,
    "relax": _MODELS,
    "topi": "write the formula with te.compute; whole models have at.ops",
    "graph_executor": _MODELS,
    "nd": "pass NumPy arrays: f(a, b, c)",
    "ndarray": "pass NumPy arrays: f(a, b, c)",
    "sparse": "extents cannot depend on data; rows of constant length are gathered with ordinary indices",
    "convert": "pass NumPy arrays: f(a, b, c)",
    "context": _ARRAYS,
    "device": _ARRAYS,
    "cpu": _ARRAYS,
    "gpu": _ARRAYS,
    "cuda": _ARRAYS,
    "rocm": _ARRAYS,
    "metal": _ARRAYS,
    "vulkan": _ARRAYS,
    "target": 'write the text of the target: target="llvm -mcpu=znver4"',
    "transform": _PASSES,
    "build_config": _PASSES,
    "ir_pass": _PASSES,
    "arith": "at.lower simplifies index arithmetic by itself",
    "register_func": _PYTHON,
    "get_global_func": _PYTHON,
    "IRModule": "at.lower(s, args) gives the loops, at.build(s, args) the function",
    "tir": "it is te: from autotensor import te",
    "dlight": _SEARCH,
    "error": _RAISED,
    "TVMError": _RAISED,
    "extern": "a stage is always an expression; call other code between two kernels",
    "hybrid": "a stage is always an expression; write it with te.compute",
    "instrument": _PASSES,
    "ir_module": "at.lower(s, args) gives the loops, at.build(s, args) the function",
    "lib": "at.build and at.load give functions: call them with NumPy arrays",
    "Object": "programs are plain Python objects; print shows them",
    "register_extension": _PYTHON,
    "register_object": _PYTHON,
    "save_json": "f.save writes a compiled function; at.log() has every trial",
    "load_json": "at.load reads a file of f.save; at.log() has every trial",
    "size_var": 'write te.var("n", range=(1, 512)), or n = 1024',
    "script": "there is no TVMScript; write stages with te.compute",
    "driver": "the commands are autotensor tune, autotensor compile and autotensor run",
    "module": 'at.load("k.atm") reads a file of f.save("k.atm")',
    "select": "write te.if_then_else",
    "max": "write te.max over an axis, te.maximum of two",
    "min": "write te.min over an axis, te.minimum of two",
    "support": "autotensor doctor says what this machine can do",
    "micro": "at.write_c writes a model as a C library (docs/deploy.md)",
    "vta": "an accelerator is a target of your own (docs/add-a-target.md)",
    "decl_buffer": "a stage's buffer is chosen by its schedule: s.layout, s[C].storage_align",
    "const": "it is te.const",
    "contrib": "a kernel calls no other library; models are compiled by at.compile_model, and at.write_c "
    "writes a C library",
    "ir_builder": "a stage is always an expression; write it with te.compute",
    "rpc": "candidates are measured on this machine, or on others by at.tune(..., fleet=) (docs/fleet.md)",
    "testing": "write numpy.testing.assert_allclose",
    "models": "it is imported by name: from autotensor.models import MODELS",
}

sys.meta_path.append(AbsentModules(__name__, "at", _ELSEWHERE))


def __getattr__(name: str) -> Any:
    if name in ("te", "tir"):  # autotensor.te has the names of tvm.tir (Select, const, indexmod)
        return importlib.import_module("autotensor.te")
    if name == "runtime":  # the module gives advice about TVM's names
        return importlib.import_module("autotensor.runtime")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise absent("at", name, sys.modules[__name__], _ELSEWHERE)


def __dir__() -> list[str]:
    return sorted(__all__)
