"""The tables of a C library, as LLVM IR: requirements on arguments, locations of all other slots, names,
sentences.

check    a row for each argument: slot, bytes, alignment, valid indices
lies     a row for each other slot of the entry: its offset in the weights or in a block, a step per thread
texts    a sentence for each status: first those of all libraries, then four for each argument
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autotensor.base.dtype import dtype_of
from autotensor.codegen.library import shared_threads
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.native.assembler import Struct
from autotensor.runtime.native.direct_call import inside_ir

BLOCK = Struct("ptr next · align 64")  # the slots follow, then the workspaces
CODES_EACH = 4  # codes for each argument: null, misaligned, an index outside, shared memory
FIRST_CODE = 16  # the first code that stands for an argument
_LINE = 64
CODES = (
    "NULL_POINTER", "BAD_THREADS", "BAD_PROCESSOR", "NO_TILES", "NO_FILE", "OTHER_WEIGHTS", "NO_MEMORY",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weights:
    """The locations of the weights in their file."""

    head: bytes  # the first bytes of the file, which identify it
    offsets: dict[str, int]  # the offset of each weight, by the argument's name
    bytes: int  # the size of the whole file; 0: there is no file


def workspace_bytes(artifact: Artifact, threads: int) -> int:
    """Bytes of memory that one call needs for itself."""
    _, shared, each = places_of(artifact, Weights(b"", {}, 0))
    return shared + threads * each


def places_of(artifact: Artifact, weights: Weights) -> tuple[list[str], int, int]:
    """The rows of LIES, the bytes of a block that all threads share, and the bytes for each thread."""
    rows = []
    shared, each = BLOCK.bytes + _up(8 * len(artifact.args)), 0
    for slot, spec in enumerate(artifact.args):
        if spec.name in weights.offsets:
            rows.append(f"i64 {slot}, i64 0, i64 {weights.offsets[spec.name]}, i64 0")
        elif spec.role == "workspace" and not spec.per_thread:
            rows.append(f"i64 {slot}, i64 1, i64 {shared}, i64 0")
            shared += _up(spec.bytes)
    for slot, spec in enumerate(artifact.args):
        if spec.per_thread:
            rows.append(f"i64 {slot}, i64 1, i64 {shared}, i64 {each}")
            each += spec.stride
    return rows, shared, each


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE


def checks(artifact: Artifact) -> Iterator[str]:
    slots = {spec.name: n for n, spec in enumerate(artifact.args)}
    for spec in artifact.role("input") + artifact.role("output"):
        dtype, found = dtype_of(spec.dtype), artifact.index_range(spec.name)
        low, high, inside = 0, 0, "null"
        if found is not None:
            low, high, inside = *found, f"@{_inside_name(spec.dtype)}"
        numbers = f"i64 {slots[spec.name]}, i64 {spec.bytes}, i64 {dtype.bytes - 1}"
        yield f"{numbers}, ptr {inside}, i64 {low}, i64 {high}"


def _inside_name(dtype: str) -> str:
    return f"inside_{dtype}"


def inside_functions(artifact: Artifact) -> Iterator[str]:
    kinds = {s.dtype for s in artifact.role("input") if artifact.index_range(s.name) is not None}
    for dtype in sorted(kinds):
        yield inside_ir(_inside_name(dtype), dtype_of(dtype).numpy)


def sentences_of(artifact: Artifact) -> list[str]:
    """The sentence of each status code, in the order of the codes."""
    needs = ", ".join(artifact.needs)
    first = {
        "NULL_POINTER": "a pointer that must not be null is null.",
        "BAD_THREADS": f"the number of threads must be from 0 to {shared_threads.NUMBERS['MOST_TEAM']}.",
        "BAD_PROCESSOR": f"this processor, or its system, lacks one of the features needed: {needs}.",
        "NO_TILES": "the system does not let this process use AMX's tiles.",
        "NO_FILE": "the file of weights cannot be opened; errno says why.",
        "OTHER_WEIGHTS": "the file of weights is cut short, or of another model or version.",
        "NO_MEMORY": "there is not enough memory.",
    }
    found = ["no error.", *(first[code] for code in CODES)]
    found += ["unknown status."] * (FIRST_CODE - len(found))
    for spec in artifact.role("input") + artifact.role("output"):
        what = f"{spec.role} '{spec.name}'"
        low, high = artifact.index_range(spec.name) or (0, 0)
        found += [
            f"{what} is a null pointer.",
            f"{what} is not aligned to its elements of {dtype_of(spec.dtype).bytes} bytes.",
            f"{what} holds an index that is not from {low} to {high}.",
            f"{what} shares memory with another argument.",
        ]
    return found


def constant(data: bytes) -> str:
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    return f'[{len(data)} x i8] c"{escaped}"'


def table(name: str, kind: str, rows: Iterable[str]) -> str:
    found = [f"{kind} {{ {row} }}" for row in rows]
    return f"@{name} = internal constant [{len(found)} x {kind}] [ {', '.join(found)} ]"


def arrays(arguments: Sequence[ArgSpec]) -> Iterator[str]:
    rows = []
    for n, spec in enumerate(arguments):
        shape = ", ".join(f"i64 {extent}" for extent in spec.shape) or "i64 0"
        yield f"@name.{n} = private constant {constant(spec.name.encode() + bytes(1))}"
        yield f"@dtype.{n} = private constant {constant(spec.dtype.encode() + bytes(1))}"
        yield f"@shape.{n} = private constant [{max(1, len(spec.shape))} x i64] [ {shape} ]"
        rows.append(f"ptr @name.{n}, ptr @dtype.{n}, i32 {len(spec.shape)}, ptr @shape.{n}, i64 {spec.bytes}")
    yield table("arrays", "{ ptr, ptr, i32, ptr, i64 }", rows)


def texts(sentences: Sequence[str]) -> Iterator[str]:
    numbers = {sentence: n for n, sentence in enumerate(dict.fromkeys(sentences))}
    for sentence, n in numbers.items():
        yield f"@text.{n} = private constant {constant(sentence.encode() + bytes(1))}"
    rows = ", ".join(f"ptr @text.{numbers[sentence]}" for sentence in sentences)
    yield f"@texts = internal constant [{len(sentences)} x ptr] [ {rows} ]"
    yield f"@unknown = private constant {constant(b'unknown status.' + bytes(1))}"
