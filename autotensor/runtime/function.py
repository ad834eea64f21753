"""The base class of all compiled functions: named arguments, constants, texts, and saving to a file.

    CompiledFunction ──▶ Module         code for this processor; several calls may run at once
                     ├─▶ DeviceModule   kernels for a device; calls take turns
                     └─▶ Hosted         run by Python, for example a simulator; nothing is prepared in advance

A constant is *free* until it has a value. Once all constants have values, `prepare` runs once, and its
results replace the constants that only `prepare` reads. Until then, the free constants are arguments of each
call, and `prepare` runs in every call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from autotensor.base.absent_names import absent, methods_take_their_names
from autotensor.base.errors import ArgumentError, InputError
from autotensor.base.registry import suggest
from autotensor.runtime.arguments import Slot
from autotensor.runtime.arrays import Array, aligned_copy
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.signature import Signature

Store = Literal["plain", "prepared"]  # how a file stores constants

_ELSEWHERE = {  # attribute of TVM's modules → advice
    "time_evaluator": "f.time([a, b]) gives all samples in seconds",
    "get_source": 'it is f.source("llvm"), also "te", "nest", "ir", "asm", "trace"',
    "imported_modules": "a module is one piece; f.source(...) has its texts",
    "entry_name": "a module is one function; call it",
    "get_function": "a module is one function; call it",
    "benchmark": "f.time([a, b]) gives all samples in seconds",
    "evaluate": "f.time([a, b]) gives all samples in seconds",
    "entry_func": "a module is one function; call it",
    "import_module": "a module is one piece, with the kernels of its target",
    "set_input": "call it with NumPy arrays: y = f(x), or y = f(name=x)",
    "run": "call it with NumPy arrays: y = f(x)",
    "get_output": "call it: y = f(x), or y, z = f(x) for two results",
    "get_input": "print(f.signature) shows the arguments; a call takes NumPy arrays",
    "get_params": "f.artifact.values holds the constants",
    "get_lib": 'write f.save("k.atm")',
    "type_key": "f.signature shows what it takes and gives",
    "module": "a module is one function; call it",
    "export_library": 'write f.save("k.atm"), and autotensor.load("k.atm") elsewhere; at.write_c for C',
}


_SAMPLES = "Write repeat=N for N samples; each sample lasts at least min_seconds=."
_takes_its_names = methods_take_their_names(
    "f", {"number": _SAMPLES, "min_repeat_ms": _SAMPLES, "fmt": "Leave it out: the file is an .atm file."}
)


@_takes_its_names
class CompiledFunction(ABC):
    """An artifact and the values of its constants; see the module's docstring."""

    artifact: Artifact
    name: str
    threads: int
    _values: dict[str, Array]  # values of constants and prepared arrays
    _prepare_each_call: bool
    _inputs: tuple[Slot, ...]  # arguments of a call: the inputs and the free constants
    _outputs: tuple[Slot, ...]

    def __init_subclass__(cls) -> None:
        _takes_its_names(cls)

    def _take(self, artifact: Artifact, values: Mapping[str, Array]) -> None:
        """Stores the artifact and these values. Runs `prepare` if no constant is free."""
        self.artifact, self.name = artifact, artifact.name
        self._values = dict(values)
        constants = _names(artifact.role("constant"))
        self._prepare_each_call = not self._is_prepared()
        if self._prepare_each_call and all(n in values for n in constants):
            # Constants that only `prepare` reads are no longer needed.
            self._values = self._prepared() | {n: values[n] for n in artifact.entry_constants()}
            self._prepare_each_call = False
        free = [n for n in constants if n not in values] if self._prepare_each_call else []
        slots = [Slot.of(k, spec, artifact.index_range(spec.name)) for k, spec in enumerate(artifact.args)]
        self._inputs = tuple(s for s in slots if s.spec.role == "input" or s.spec.name in free)
        self._outputs = tuple(s for s in slots if s.spec.role == "output")

    def _is_prepared(self) -> bool:
        """Whether all prepared arrays, and all constants that `entry` reads, have values."""
        made = _names(self.artifact.role("prepared"))
        needed = self.artifact.entry_constants() if made else _names(self.artifact.role("constant"))
        return all(n in self._values for n in (*made, *needed))

    @abstractmethod
    def _prepared(self) -> dict[str, Array]:
        """Runs `prepare` on all constants. Returns the prepared arrays, read-only."""

    @abstractmethod
    def _with(self, values: dict[str, Array]) -> Self:
        """The same function on the same device, with other values."""

    @abstractmethod
    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run. Returns the outputs (one array, or a tuple), or None if the caller gave all output arrays."""

    @staticmethod
    def _answer(outputs: Sequence[Array], results: Sequence[Array] | None, out: Any) -> Any:
        """The return value of a call. results: the caller's output arrays, if any. out: the call's `out=`."""
        if results is not None and out is None:
            return None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    if not TYPE_CHECKING:  # type checkers should still report unknown names

        def __getattr__(self, name: str) -> Any:
            raise absent("f", name, self, _ELSEWHERE)

    def __getitem__(self, name: Any) -> NoReturn:
        raise InputError(f"{self.name} has no parts, got [{name!r}].", fix="It is one function: call it.")

    @property
    def args(self) -> tuple[ArgSpec, ...]:
        """The arguments of a call, in order: inputs and unbound constants, then outputs."""
        return tuple(s.spec for s in (*self._inputs, *self._outputs))

    @property
    def signature(self) -> Signature:
        """Names, shapes and types of a call's arguments and results. Print it to see them."""
        return Signature(tuple(s.spec for s in self._inputs), tuple(s.spec for s in self._outputs))

    def bind(self, **constants: Array) -> Self:
        """A function in which these constants have values. Once all constants have values, `prepare` runs.

        The arrays are read now; changing them later has no effect. Raises ArgumentError for a name that is
        not a free constant of this function, and for an array of another shape or type.
        """
        free = {s.spec.name: s for s in self._inputs if s.spec.role == "constant"}
        values = dict(self._values)
        for name, array in constants.items():
            if name not in free:
                raise ArgumentError(
                    f"bind: {self.name} has no free constant {name!r}.", fix=suggest(name, tuple(free))
                )
            free[name].address(self.name, array)  # raises ArgumentError if the array does not fit
            values[name] = aligned_copy(array)
            values[name].flags.writeable = False
        return self._with(values)

    def source(self, kind: str) -> str:
        """One of the texts of the compilation: "te", "nest", "ir", "llvm", "asm", "opencl", "cuda" …"""
        texts = self.artifact.texts
        if kind not in texts:
            raise ArgumentError(f"{self.name} keeps no text {kind!r}.", fix=suggest(kind, tuple(texts)))
        return texts[kind]

    def save(self, path: str | Path, store: Store | None = None) -> None:
        """Writes code, texts and bound constants to an `.atm` file, atomically.

        store: "plain" stores the constants as given, and the first load on each machine prepares them.
        "prepared" stores them in the layout that calls read. None means "plain" if the function still has the
        given constants, as models do. A function after `bind` has only prepared arrays. Raises ArgumentError
        if "plain" is impossible.
        """
        artifacts.save(path, self._bound(store)[0])

    @property
    def ready(self) -> Artifact:
        """The artifact with the arrays that calls read. Prepared arrays replace the constants that they are
        made from."""
        return replace(self.artifact, values=self._values)

    def _bound(self, store: Store | None = None) -> tuple[Artifact, ...]:
        """The artifacts that `save` writes to a file."""
        if store not in (None, "plain", "prepared"):
            raise ArgumentError(f"save: store is {store!r}.", fix='Known: "plain", "prepared".')
        plain = all(a.name in self.artifact.values for a in self.artifact.role("constant"))
        if store == "plain" and not plain:
            raise ArgumentError(
                f"save: {self.name} keeps only its prepared constants.",
                fix='Take store="prepared".',
            )
        return (self.artifact if plain and store != "prepared" else self.ready,)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the bytes of the `.atm` file, with bound constants, and the number of threads."""
        from autotensor.runtime.saved_model import unpickled  # pickles refer to this function by its name

        return unpickled, (artifacts.to_bytes(self._bound()), self.threads)

    def __copy__(self) -> Self:
        """A separate function. It shares the code and the constants, which are read-only."""
        return self._with(self._values)

    def __deepcopy__(self, memo: Mapping[int, Any]) -> Self:
        return self._with(self._values)


def _names(specs: Iterable[ArgSpec]) -> tuple[str, ...]:
    return tuple(s.name for s in specs)
