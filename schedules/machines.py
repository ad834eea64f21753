"""The fingerprint rule decides whether a record that was measured on another machine may be used here.

    exact        the same processor, as far as this can be known: the record may be used at once
    compatible   the same registers but another model, or other threads: the record is worth measuring
    refused      other vectors, a missing feature, other caches: the record is not used

The rule is a pure function: it takes two machines and two targets, and returns a verdict with its reason. For
`exact`, the same code is not enough. The number of cores must be equal, too, because two threads are not
equally fast on one core and on two cores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from autotensor.base.machine import HostMachine
from autotensor.base.target import Target
from autotensor.codegen.llvm.backend import needs

# Features on which schedules depend. Other features (dot products of int8, bfloat16) only change the code of
# operations.
VECTORS = frozenset(
    (
        *("sse4.1", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vl", "avx512bw", "avx512dq"),
        *("neon", "sve", "sve2", "fullfp16"),
    )
)
CACHE_FACTOR = 2.0  # largest ratio between the first caches, and between the second caches (for tiles)
_NUMBERS = re.compile(r"\((\d+)/(\d+)/\d+\)$")  # family/model/stepping after a name


class Fit(StrEnum):
    """How well a machine matches the machine of a record."""

    EXACT = "exact"
    COMPATIBLE = "compatible"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A fit, and the reason why it is not better; the reason is "" for an exact fit."""

    fit: Fit
    reason: str = ""


def fit(theirs: HostMachine, their_target: Target, ours: HostMachine, our_target: Target) -> Verdict:
    """Whether records of the machine `theirs`, made for `their_target`, may be used on `ours` for
    `our_target`."""
    reason = _unlike(theirs, their_target, ours, our_target)
    if reason:
        return Verdict(Fit.REFUSED, reason)
    reason = _not_the_same(theirs, their_target, ours, our_target)
    return Verdict(Fit.COMPATIBLE, reason) if reason else Verdict(Fit.EXACT)


def identity(m: HostMachine) -> tuple[object, ...]:
    """The facts that two machines of one class share. Names and steppings are left out; hypervisors change
    them.

    >>> a, b = HostMachine("AMD EPYC (25/17/1)", (), 2, ()), HostMachine("AMD EPYC 9R14 (25/17/2)", (), 2, ())
    >>> identity(a) == identity(b)
    True
    """
    return (_model(m.cpu_model), _usable(m.features), m.cores, m.caches)


def _unlike(theirs: HostMachine, their_target: Target, ours: HostMachine, our_target: Target) -> str:
    """The reason why their schedules cannot be used on our machine; "" if they can."""
    if their_target.kind != our_target.kind:
        return f"made for {their_target.kind}, not {our_target.kind}"
    if their_target.is_strict != our_target.is_strict:
        return f"made for {their_target.numerics} numerics, not {our_target.numerics}"
    if their_target.vector_bytes != our_target.vector_bytes:
        return f"made for vectors of {their_target.vector_bytes} bytes, not {our_target.vector_bytes}"
    if their_target.vector_registers != our_target.vector_registers:
        return f"made for {their_target.vector_registers} registers, not {our_target.vector_registers}"
    missing = sorted((VECTORS & set(theirs.features)) - set(needs(our_target)))
    if missing:
        return f"made for a processor with {', '.join(missing)}"
    for level, (a, b) in enumerate(zip(theirs.caches[:2], ours.caches[:2], strict=False), start=1):
        if max(a, b) > CACHE_FACTOR * min(a, b):
            return f"made for an L{level} cache of {a >> 10} KiB, not {b >> 10} KiB"
    return ""


def _not_the_same(theirs: HostMachine, their_target: Target, ours: HostMachine, our_target: Target) -> str:
    """A difference between the two machines or targets; "" if there is none."""
    if _model(theirs.cpu_model) != _model(ours.cpu_model):
        return f"measured on {theirs.cpu_model}"
    if _usable(theirs.features) != _usable(ours.features):
        return f"measured on {theirs.cpu_model} with other features"
    if theirs.caches != ours.caches:
        return f"measured on {theirs.cpu_model} with other caches"
    if theirs.cores != ours.cores:
        return f"measured on {theirs.cores} core{'s' * (theirs.cores != 1)}, not {ours.cores}"
    if their_target.num_cores != our_target.num_cores:
        return f"measured with {their_target.num_cores} threads, not {our_target.num_cores}"
    if their_target.key() != our_target.key():
        return f"measured as {their_target.key()}, not {our_target.key()}"
    return ""


def _model(cpu: str) -> str:
    """Family and model if the name ends with them; otherwise the whole name."""
    numbers = _NUMBERS.search(cpu)
    return "/".join(numbers.groups()) if numbers else cpu


def _usable(features: tuple[str, ...]) -> tuple[str, ...]:
    """The features that generated code may use; `needs` also decides about objects."""
    return needs(Target("llvm", features=",".join(f"+{f}" for f in features)))
