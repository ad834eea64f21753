"""The backend of `torch.compile(model, backend="autotensor")`.

    model ──dynamo──▶ parts without Python in them ──AOT autograd──▶ ATen graph ──import──▶ Graph ──▶ Module

AOT autograd makes each part a pure function. Around this function, torch itself handles writes in place, and
results that share memory with inputs. Weights and buffers of modules become constants, so norms are folded
and weights packed once. If a weight or buffer changes, the part is compiled again. A buffer that changes
repeatedly is read at every call. A part that runs with the weights of several modules, like one block
compiled for all layers, keeps code for each. Operators without a converter run in eager mode, with one
warning.
"""

from __future__ import annotations

import copy
import threading
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.utils import get_static_address_type
from torch._functorch.aot_autograd import aot_module_simplified
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from autotensor.base import log
from autotensor.base.errors import AutotensorError
from autotensor.frontends.torch import Unsupported
from autotensor.frontends.torch.decomposed.table import WHOLE, extended
from autotensor.frontends.torch.refused_operators import first_line
from autotensor.integrations.compiled_part import CompiledPart, Run, Views, compile_part, unpacked
from autotensor.integrations.torch_options import Options

# operators into which dispatch turns attention and a norm before AOT traces them; no linear or matmul is left
KEPT = frozenset(
    {*WHOLE, "aten._scaled_dot_product_flash_attention_for_cpu.default", "aten._fused_rms_norm.default"}
)
KEPT_SHAPES = 64  # most sets of sizes for which code of one part is kept
# a buffer that has changed this often is not a constant any more. Weights stay constants, because calls are
# more frequent than changes of weights
MOST_CHANGES = 3


def autotensor(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **_: Any,
) -> Run:
    """Compiles a part of a model. Dynamo calls this function for each part."""
    wanted = Options.of(options)
    if any(not isinstance(x, torch.Tensor) for x in example_inputs) or _numbers_of(module):
        return _open_or_by_shape(module, tuple(example_inputs), wanted)
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


def _open_or_by_shape(module: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> Run:
    """Compiles a part with open sizes: one program for all sizes if possible, else one for each set of
    sizes."""
    if not _refused(examples):
        try:
            return _Part(module, examples, options)
        except AutotensorError as error:
            told = str(error)
            log.at(1, lambda: f"a part of the model is compiled for each set of sizes: {told}")
    return _ByShape(module, options)


def _refused(examples: Sequence[Any]) -> str:
    """The reason why this part is not compiled; "" if it can be compiled."""
    tensors = [x for x in examples if isinstance(x, torch.Tensor)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return "it needs gradients, which are not supported here; call the model under torch.no_grad()"
    if elsewhere := [str(x.device) for x in tensors if x.device.type != "cpu"]:
        return f"its tensors are on {elsewhere[0]}, not on the CPU"
    return ""


def _eager(module: torch.fx.GraphModule) -> Run:
    run: Run = module.forward
    return run


class _Part:
    """A part, compiled for each set of weights: one block may run with the weights of all layers.

    Watches the weights and buffers that are constants in its code.
    """

    def __init__(self, module: torch.fx.GraphModule, examples: Sequence[Any], options: Options) -> None:
        self._module, self._options = module, options
        self._lock = threading.Lock()
        self._changes: dict[int, int] = {}  # argument of a buffer → number of changes so far
        self._effects = _Effects()
        self._traced: _Traced | None = None
        self._is_open = any(isinstance(x, torch.SymInt) for x in examples)
        kept = _constants(examples) if options.constant_weights else frozenset()
        self._kept, self._weights = kept, tuple(n for n in sorted(kept) if _is_weight(examples[n]))
        self._codes: dict[tuple[int, ...], _Code] = {}  # by the identities of the weights
        # the code of the last call. It is replaced as a whole, so other threads see the old code or the new
        # one
        self._last = self._compile(self._whose(examples), examples)

    def _compile(self, whose: tuple[int, ...], examples: Sequence[Any]) -> _Code:
        kept = self._kept - {n for n, times in self._changes.items() if times >= MOST_CHANGES}
        if not (self._is_open and self._traced):  # an open part is traced while dynamo has its sizes
            self._traced = _aot(self._module, examples, self._effects)
            self._effects = self._traced.effects
        with (
            torch.no_grad(),
            _disable_current_modes(),
        ):  # torch is tracing at this point, but weights are real tensors
            run = self._traced.compiled(kept, examples, self._options)
        watch = _Watch.of(examples, sorted(kept - self._effects.written))
        code = _Code(run, watch, tuple(weakref.ref(examples[n]) for n in self._weights))
        self._codes = {k: c for k, c in self._codes.items() if c.is_wanted} | {whose: code}
        return code

    def __call__(self, *args: Any) -> Any:
        code = self._last
        if code.watch.marks != code.watch.look(args):
            code = self._last = self._code_for(args)
        return code.run(*args)

    def _whose(self, args: Sequence[Any]) -> tuple[int, ...]:
        return tuple(id(args[n]) for n in self._weights)

    def _code_for(self, args: Sequence[Any]) -> _Code:
        """The part's code for the present values of these weights."""
        whose = self._whose(args)
        code = self._codes.get(whose)
        if code is not None and code.watch.marks == code.watch.look(args):
            return code
        with self._lock, torch.no_grad():
            code = self._codes.get(whose)
            changed = [] if code is None else code.watch.changed(args)
            if code is not None and not changed:  # another thread was here first
                return code
            for n in changed:
                if n not in self._weights:
                    self._changes[n] = self._changes.get(n, 0) + 1
            return self._compile(whose, args)


@dataclass(frozen=True, slots=True)
class _Code:
    """The code of a part for one set of weights."""

    run: Run
    watch: _Watch
    weights: tuple[weakref.ref[torch.Tensor], ...]

    @property
    def is_wanted(self) -> bool:
        """Whether all its weights still exist."""
        return all(w() is not None for w in self.weights)


@dataclass(frozen=True, slots=True)
class _Effects:
    """Side effects of a part, which torch reports when it first traces the part."""

    written: frozenset[int] = frozenset()  # arguments that it writes to
    # surely no effects: no written argument, no result that shares memory with another tensor
    none: bool = False
    # results and written arguments of which torch reads strides and offset; None: unknown
    views: Views = None

    @staticmethod
    def traced() -> _Effects | None:
        """The effects of the part that is traced now; None if torch does not report them, because it traces
        without a context between calls."""
        context = TracingContext.try_get()
        found = context.fw_metadata if context is not None else None
        if found is None:
            return None
        written = frozenset(found.mutated_inp_runtime_indices)
        others = found.num_outputs_aliased + found.num_intermediate_bases + len(found.tokens)
        none = not written and not others and not found.is_rng_op_functionalized
        first = len(found.mutated_inp_runtime_indices)  # a part gives written arguments before its results
        inputs = [found.input_info[n] for n in found.mutated_inp_runtime_indices]
        kinds = [x.output_type.name for x in found.output_info]
        turned = [k for k, x in enumerate(inputs) if x.mutates_metadata]
        made = [first + k for k, kind in enumerate(kinds) if kind.startswith("alias_of")]
        return _Effects(written, none, frozenset(turned + made))


@dataclass(frozen=True, slots=True)
class _Watch:
    """The indices of constants among the arguments, and torch's count of writes to each.

    Every call checks them: 0.15 us for each, or 0.8 us after a model that has emptied the caches (Zen 4,
    2026-11).
    """

    arguments: tuple[int, ...]
    marks: list[int]
    memory: tuple[Any, ...]  # kept alive, so that no other tensor can get the same address

    @staticmethod
    def of(args: Sequence[Any], arguments: Sequence[int]) -> _Watch:
        weights = [args[n] for n in arguments]
        memory = tuple(w.untyped_storage() for w in weights)
        return _Watch(tuple(arguments), [*map(_ADDRESS, weights), *map(_VERSION, weights)], memory)

    def look(self, args: Sequence[Any]) -> list[int]:
        weights = [args[n] for n in self.arguments]
        return [*map(_ADDRESS, weights), *map(_VERSION, weights)]

    def changed(self, args: Sequence[Any]) -> list[int]:
        """The indices of the arguments that have changed."""
        now, count = self.look(args), len(self.arguments)
        return [
            n
            for k, n in enumerate(self.arguments)
            if (now[k], now[count + k]) != (self.marks[k], self.marks[count + k])
        ]


_ADDRESS, _VERSION = torch.Tensor.data_ptr, attrgetter("_version")


def _constants(examples: Sequence[Any]) -> frozenset[int]:
    """The indices of the inputs that are weights or buffers of modules and whose changes torch counts."""
    return frozenset(
        n
        for n, x in enumerate(examples)
        if isinstance(x, torch.Tensor)
        and (_is_weight(x) or get_static_address_type(x) is not None)
        and not x.is_inference()
    )


def _is_weight(x: torch.Tensor) -> bool:
    """Whether a constant is a weight and not a buffer."""
    return isinstance(x, torch.nn.Parameter)


@dataclass(frozen=True, slots=True)
class _Traced:
    """A part traced by AOT autograd as a function of all inputs, to be compiled for any weights."""

    graph: torch.fx.GraphModule
    same: bool  # whether the inputs are those of the part: torch merges inputs that share memory
    effects: _Effects
    boxed: _Boxed
    found: Run  # AOT's own function around `boxed`

    def compiled(self, kept: frozenset[int], examples: Sequence[Any], options: Options) -> Run:
        """The compiled part, with these inputs and all numbers as constants."""
        known = {
            n: x
            for n, x in enumerate(examples)
            if self.same and (n in kept - self.effects.written or _is_number(x, self._argument(n)))
        }
        part = compile_part(self.graph, known, options, self.effects.views)
        if self.effects.none:  # AOT's wrappers would have nothing to do, and would cost 20 us a call
            return unpacked(part)
        return self.boxed.around(self.found, part)

    def _argument(self, n: int) -> Any:
        return [a.meta.get("val") for a in self.graph.graph.find_nodes(op="placeholder")][n]


def _is_number(example: Any, argument: Any) -> bool:
    """Whether an argument is a number that does not change."""
    return not isinstance(example, torch.Tensor) and not isinstance(argument, torch.SymInt)


def _aot(module: torch.fx.GraphModule, examples: Sequence[Any], effects: _Effects) -> _Traced:
    """The traced part. effects: the part's effects, in case torch does not report them."""
    traced: tuple[torch.fx.GraphModule, bool, _Effects] | None = None
    boxed = _Boxed()

    def compiler(graph_module: torch.fx.GraphModule, fakes: Sequence[Any]) -> Run:
        nonlocal traced
        same = len(fakes) == len(examples)
        traced = graph_module, same, (_Effects.traced() or effects) if same else _Effects()
        return boxed

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own internals
        try:
            found: Run = aot_module_simplified(
                module,
                list(examples),
                fw_compiler=compiler,
                inference_compiler=compiler,
                decompositions=_decompositions(),
            )
        # dynamo handles this error itself: it traces again, because a number turned out not to depend on data
        except RestartAnalysis:
            raise
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Unsupported(
                f"it makes a Python number of a tensor's value ({str(error).split()[0]}).",
                fix="Index by tensors: x[:, i[:1]], torch.index_select.",
            ) from error
        except (RuntimeError, AssertionError) as error:  # what breaks torch's rules for tracing
            raise Unsupported(f"torch cannot trace it: {first_line(error)}.") from error
    assert traced is not None, "AOT compiles what it has traced"
    return _Traced(*traced, boxed, found)


def _decompositions() -> dict[Any, Any]:
    """Torch's core decompositions, without operators that must stay whole."""
    table = extended(dict(torch._decomp.core_aten_decompositions()))
    return {operator: how for operator, how in table.items() if str(operator) not in KEPT}


class _Boxed:
    """The function that AOT autograd calls with a list of arguments. It empties this list and runs the part
    of the calling thread."""

    _boxed_call = True

    def __init__(self) -> None:
        self._here = threading.local()

    def __call__(self, args: list[Any]) -> list[Any]:
        results: list[Any] = self._here.part(args)
        args.clear()
        return results

    def around(self, found: Run, part: CompiledPart) -> Run:
        """The function `found`, which AOT wrapped around this object, for one part."""

        def run(*args: Any) -> Any:
            self._here.part = part
            return found(*args)

        disabled: Run = torch._dynamo.disable(run, reason="compiled by autotensor")
        return disabled


# -- shapes that change ------------------------------------------------------------------------------------


class _ByShape:
    """A part with open sizes, compiled for every set of sizes that comes."""

    def __init__(self, module: torch.fx.GraphModule, options: Options) -> None:
        self._module, self._options = module, options
        self._made: dict[Any, Run] = {}
        self._lock = threading.Lock()
        self._numbers = _numbers_of(module)
        # the arguments whose size may change, known from the first call on
        self._open: tuple[int, ...] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._open is None:  # dynamo fixes the sizes of weights and buffers
            fixed = _constants(args) if self._options.constant_weights else frozenset()
            self._open = tuple(n for n in range(len(args)) if n not in {*fixed, *self._numbers})
        numbers = [repr(args[n].item()) for n in self._numbers]  # -0.0 is not 0.0
        key = (torch.is_grad_enabled(), *numbers, *[_shape_of(args[n]) for n in self._open])
        run = self._made.get(key)
        return (run or self._compile(key, args))(*args)

    def _compile(self, key: Any, args: tuple[Any, ...]) -> Run:
        with self._lock:
            if key not in self._made:
                if len(self._made) >= KEPT_SHAPES:
                    del self._made[next(iter(self._made))]  # the oldest
                module = _with_numbers(self._module, {n: args[n].item() for n in self._numbers})
                self._made[key] = _compiled_or_eager(module, args, self._options)
            return self._made[key]


def _numbers_of(module: torch.fx.GraphModule) -> tuple[int, ...]:
    """Arguments that are Python numbers in tensors, e.g. a norm's epsilon if dynamo leaves sizes open."""
    arguments = [n for n in module.graph.nodes if n.op == "placeholder"]
    return tuple(k for k, n in enumerate(arguments) if n.users and all(_is_read(u) for u in n.users))


def _is_read(node: torch.fx.Node) -> bool:
    return bool(node.op == "call_method" and node.target == "item")


def _with_numbers(module: torch.fx.GraphModule, numbers: dict[int, Any]) -> torch.fx.GraphModule:
    """The part with these numbers in place of arguments."""
    if not numbers:
        return module
    graph = copy.deepcopy(module.graph)
    arguments = [n for n in graph.nodes if n.op == "placeholder"]
    for number, value in numbers.items():
        for read in list(arguments[number].users):
            for user in list(read.users):
                user.args = _replaced(user.args, read, value)
                user.kwargs = _replaced(user.kwargs, read, value)
            graph.erase_node(read)
    return torch.fx.GraphModule(module, graph)


def _replaced(arguments: Any, node: torch.fx.Node, value: Any) -> Any:
    return map_arg(arguments, lambda n: value if n is node else n)


def _shape_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.stride(), value.requires_grad
    return value


# -- words -------------------------------------------------------------------------------------------------

_said: set[str] = set()


def _tell(why: str, options: Options) -> None:
    """Warns, once for each reason, that a part runs in eager mode."""
    if options.quiet or why in _said:
        return
    _said.add(why)
    warnings.warn(f"autotensor: a part of the model runs in eager mode: {why.rstrip('.')}.", stacklevel=3)


__all__ = ["CompiledPart", "autotensor", "compile_part"]
