"""The backend of `torch.compile(model, backend="autotensor")`.

    model ──dynamo──▶ parts without Python in them ──AOT autograd──▶ ATen graph ──import──▶ Graph ──▶ Module

AOT autograd makes each part a pure function: what it writes in place, and results that share memory with
inputs, torch itself takes care of around it. Weights become constants, which are packed once; a part whose
weights have changed since is compiled anew. What we do not convert runs in eager mode and is said once.

Options: torch.compile(model, backend="autotensor", options={"log": "tuning.db", "trials": 200})
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from autotensor.api.log import Log
from autotensor.api.models import compile_model
from autotensor.base.errors import AutotensorError, InputError
from autotensor.base.registry import suggest
from autotensor.frontends.torch import Unsupported, import_nodes
from autotensor.frontends.torch.creation import from_tensor
from autotensor.frontends.torch.types import dtype_name, to_array, to_tensor
from autotensor.graph.build import input as new_input
from autotensor.graph.ir import Graph, GraphNode, Input, topological
from autotensor.runtime.opening import Function

Run = Callable[..., Any]
KEPT_SHAPES = 64  # of one part whose sizes change


@dataclass(frozen=True, slots=True)
class Options:
    """What `options=` of torch.compile may hold."""

    log: Log = None  # the tuning log; None is the user's own
    trials: int = 0  # schedules to measure for each part; 0 takes what the log knows
    target: str | None = None
    seed: int = 0
    constant_weights: bool = True  # False: weights are read at every call, not packed once
    quiet: bool = False  # say nothing about parts that run in eager mode

    @staticmethod
    def of(given: dict[str, Any] | None) -> Options:
        """Raises InputError for an option that does not exist."""
        known = tuple(f.name for f in fields(Options))
        for name in given or {}:
            if name not in known:
                raise InputError(f"backend autotensor has no option {name!r}.", fix=suggest(name, known))
        return Options(**(given or {}))


def autotensor(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **_: Any,
) -> Run:
    """A part of a model, compiled; what dynamo calls for each part."""
    wanted = Options.of(options)
    if any(not isinstance(x, torch.Tensor) for x in example_inputs):
        return _ByShape(module, wanted)
    return _compiled_or_eager(module, tuple(example_inputs), wanted)


# -- one part, at one set of shapes ------------------------------------------------------------------------


def _compiled_or_eager(module: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> Run:
    if why := _refused(examples):
        _tell(why, options)
        return _eager(module)
    try:
        return _Part(module, examples, options)
    except AutotensorError as error:
        _tell(str(error), options)
        return _eager(module)


def _refused(examples: Sequence[Any]) -> str:
    """Why this part is not for us; "" if it is."""
    tensors = [x for x in examples if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "gradients are wanted, and none are taken here; call the model under torch.no_grad()"
    if elsewhere := [str(x.device) for x in tensors if x.device.type != "cpu"]:
        return f"its tensors are on {elsewhere[0]}, not on the CPU"
    return ""


def _eager(module: torch.fx.GraphModule) -> Run:
    run: Run = module.forward
    return run


class _Part:
    """A compiled part. Watches the weights that it holds as constants."""

    def __init__(self, module: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> None:
        self._module, self._options = module, options
        self._lock = threading.Lock()
        self._compile(examples)

    def _compile(self, examples: Sequence[Any]) -> None:
        kept = _constants(examples) if self._options.constant_weights else frozenset()
        self._weights = tuple((n, _version(examples[n])) for n in sorted(kept))
        self._run = _aot(self._module, examples, kept, self._options)

    def __call__(self, *args: Any) -> Any:
        if any(_version(args[n]) != seen for n, seen in self._weights):
            with self._lock, torch.no_grad():
                if any(_version(args[n]) != seen for n, seen in self._weights):
                    self._compile(args)
        return self._run(*args)


def _constants(examples: Sequence[Any]) -> frozenset[int]:
    """Which inputs are weights: parameters, whose changes torch counts."""
    return frozenset(
        n for n, x in enumerate(examples) if isinstance(x, torch.nn.Parameter) and not x.is_inference()
    )


def _version(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor._version


def _aot(
    module: torch.fx.GraphModule, examples: Sequence[Any], kept: frozenset[int], options: Options
) -> Run:
    """The part as a function of all its inputs, by AOT autograd and our compiler."""

    def compiler(graph_module: torch.fx.GraphModule, fakes: Sequence[Any]) -> Run:
        # Inputs of this graph are those of the part, unless torch has merged some that share memory.
        same = len(fakes) == len(examples)
        known = {
            n: x for n, x in enumerate(examples) if same and (n in kept or not isinstance(x, torch.Tensor))
        }
        with _disable_current_modes():  # weights are real tensors, and this is done while torch traces
            return _boxed(compile_part(graph_module, known, options))

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        found: Run = aot_module_simplified(
            module,
            list(examples),
            fw_compiler=compiler,
            inference_compiler=compiler,
            decompositions=_decompositions(),
        )
    disabled: Run = torch._dynamo.disable(found, reason="compiled by autotensor")
    return disabled


def _decompositions() -> dict[Any, Any]:
    """Torch's core set, less what is wanted whole."""
    kept = (
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops.aten.upsample_nearest2d.vec,
        torch.ops.aten.upsample_bilinear2d.vec,
        torch.ops.aten.silu.default,
        torch.ops.aten.softplus.default,
        torch.ops.aten.hardsigmoid.default,
        torch.ops.aten.hardswish.default,
        torch.ops.aten.pixel_shuffle.default,
        torch.ops.aten._fused_rms_norm.default,
    )
    table = dict(torch._decomp.core_aten_decompositions())
    return {operator: how for operator, how in table.items() if operator not in kept}


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """A module and where its arguments and results are among those of a part."""

    module: Function | None  # None: nothing is computed
    inputs: tuple[int, ...]  # of the part's arguments, those that the module takes, in order
    results: tuple[Any, ...]  # per result: ("out", n), ("arg", n), or ("value", x)

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        made: Any = ()
        if self.module is not None:
            arrays = [_argument(args[n]) for n in self.inputs]
            made = self.module(*arrays)
            made = made if isinstance(made, tuple) else (made,)
        return [
            to_tensor(made[x]) if kind == "out" else args[x] if kind == "arg" else x
            for kind, x in self.results
        ]


def _argument(value: torch.Tensor) -> Any:
    """The tensor's memory where a kernel can read it, else a copy of it."""
    array = to_array(value)
    return array if array.flags.aligned else array.copy()


def compile_part(module: torch.fx.GraphModule, known: dict[int, Any], options: Options) -> CompiledPart:
    """An ATen graph, compiled. known: the arguments that are constants, by number: weights and numbers.

    Raises Unsupported for what cannot be converted.
    """
    given: dict[str, Any] = {}
    places: dict[Input, int] = {}
    for number, node in enumerate(n for n in module.graph.nodes if n.op == "placeholder"):
        value = node.meta.get("val")
        if isinstance(known.get(number), torch.Tensor):
            given[node.name] = from_tensor(known[number], node.name)
        elif not isinstance(value, torch.Tensor):
            given[node.name] = known.get(number, value)
        else:
            argument = new_input(tuple(value.shape), dtype_name(value.dtype), node.name)
            given[node.name] = argument
            places[argument] = number
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = getattr(module, str(node.target), None)
            if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
                raise Unsupported(f"attribute {node.target!r} of the graph is not a tensor.")
            given[str(node.target)] = from_tensor(value, str(node.target))
    return _linked(import_nodes(module.graph, given), places, options)


def _linked(nodes: Sequence[Any], places: dict[Input, int], options: Options) -> CompiledPart:
    """The part's results: computed ones by a module, arguments as they are."""
    outputs: list[GraphNode] = []
    results: list[tuple[str, Any]] = []
    for node in nodes:
        if not isinstance(node, GraphNode):
            results.append(("value", node))
        elif isinstance(node, Input):
            results.append(("arg", places[node]))
        else:
            results.append(("out", len(outputs)))
            outputs.append(node)
    if not outputs:
        return CompiledPart(None, (), tuple(results))
    reached = set(topological(tuple(outputs)))
    inputs = tuple(n for n in places if n in reached)
    graph = Graph(inputs, tuple(outputs), "torch_part")
    module = compile_model(
        graph, options.trials, options.target, db=options.log, seed=options.seed, progress=not options.quiet
    )
    return CompiledPart(module, tuple(places[n] for n in inputs), tuple(results))


def _boxed(part: CompiledPart) -> Run:
    """AOT autograd hands over its arguments in a list, which it wants emptied."""

    def run(args: list[Any]) -> list[Any]:
        results = part(args)
        args.clear()
        return results

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


# -- shapes that change ------------------------------------------------------------------------------------


class _ByShape:
    """A part that dynamo took with sizes left open: compiled anew for every set of sizes that comes."""

    def __init__(self, module: torch.fx.GraphModule, options: Options) -> None:
        self._module, self._options = module, options
        self._made: dict[Any, Run] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        key = (torch.is_grad_enabled(), *(_shape_of(a) for a in args))
        run = self._made.get(key)
        return (run or self._compile(key, args))(*args)

    def _compile(self, key: Any, args: tuple[Any, ...]) -> Run:
        with self._lock:
            if key not in self._made:
                if len(self._made) >= KEPT_SHAPES:
                    del self._made[next(iter(self._made))]  # the oldest
                self._made[key] = _compiled_or_eager(self._module, args, self._options)
            return self._made[key]


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.stride(), value.requires_grad
    return value


# -- words -------------------------------------------------------------------------------------------------

_said: set[str] = set()


def _tell(why: str, options: Options) -> None:
    """Says, once for each reason, that a part runs in eager mode."""
    if options.quiet or why in _said:
        return
    _said.add(why)
    warnings.warn(f"autotensor: a part of the model runs in eager mode: {why.rstrip('.')}.", stacklevel=3)


__all__ = ["CompiledPart", "Options", "autotensor", "compile_part"]
