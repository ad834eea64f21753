"""Targets: a description of the machine that code is made for, as data.

`parse("llvm")` is this machine. `parse("llvm -mcpu=znver4 -threads=2")` is a stated machine, whose limits
come from LLVM's tables (`processor_features.py`). `parse("llvm -mtriple=riscv64-linux-gnu")`,
`parse("cuda -arch=sm_80")` and `parse("opencl")` are stated machines, too: no device is opened. OpenCL means
this processor, with its vectors and caches; `parse("opencl -device=gpu")` is a card. Schedules and checks
read the limits. The tuning log keeps records under `key()`.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from autotensor.base.errors import TargetError
from autotensor.base.granted.control_group import cpu_quota
from autotensor.base.granted.tile_permission import TILES, may_use_tiles
from autotensor.base.plugins import OWN, known_kinds, plugin
from autotensor.base.processor_features import (
    FAMILIES,
    advice,
    family_named,
    family_of,
    features_named,
    objection,
    vector_limits,
)
from autotensor.base.registry import suggest

KINDS = OWN
HALVES = {"bf16": "bfloat16", "fp16": "float16"}  # numerics of models → the type that weights are rounded to
NUMERICS = ("fast", "strict", *HALVES)
DENORMALS = ("keep", "flush")
GPU_KINDS = ("cuda", "opencl")
OPENCL_DEVICES = ("cpu", "gpu")
OPENCL_WARP = 32  # threads that run together on cards of NVIDIA, and on cards of AMD since RDNA

# (multiprocessors, shared bytes one block may have, L2 bytes) of the largest card of a compute capability.
# Source: CUDA C++ programming guide, "Technical specifications per compute capability"; data sheets.
CUDA_ARCHS = {
    "sm_70": (80, 96 << 10, 6 << 20),
    "sm_75": (72, 64 << 10, 6 << 20),
    "sm_80": (108, 163 << 10, 40 << 20),
    "sm_86": (84, 99 << 10, 6 << 20),
    "sm_89": (128, 99 << 10, 72 << 20),
    "sm_90": (132, 227 << 10, 50 << 20),
    "sm_100": (148, 227 << 10, 126 << 20),
}
DEFAULT_ARCH = "sm_80"
CUDA_GRID = (2**31 - 1, 65535, 65535)  # blocks along x, y, z
CUDA_BLOCK = (1024, 1024, 64)  # threads along x, y, z
# If a quota is at least this fraction of a core above a whole number of cores, one more thread is used,
# although the system then stops the team in each period. Mean time of a call with two threads over that with
# one: at a quota of 1.5 cores 0.80 for ResNet-18 and 0.77 for MobileNetV2 (the 99th percentile is 30 ms
# later); at 1.25 cores 0.95 and 1.01 (Zen 4, 2026-11).
TEAM_FROM = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of device and its limits; sizes in bytes."""

    kind: str
    arch: str = ""  # LLVM CPU name, or sm_90, …; for OpenCL the name of a platform, "" for any
    features: str = ""  # LLVM feature string; empty means what `arch` implies
    triple: str = ""  # empty means this host
    num_cores: int = 1  # multiprocessors or compute units of a GPU
    vector_bytes: int = 16  # for a GPU: the widest access of one thread
    vector_registers: int = 16
    cache_bytes: tuple[int, ...] = (32 << 10, 1 << 20)  # L1 data, L2, L3, …, as one core sees them
    warp_size: int = 1
    max_threads_per_block: int = 1
    max_shared_bytes: int = 0
    # "strict" forbids algorithms that round differently (Winograd), although their errors are checked.
    # "bf16" and "fp16" are like "fast", and also round the weights of models (`graph/rules`).
    numerics: str = "fast"
    denormals: str = "keep"  # "flush" reads denormal numbers as zeros, and writes zeros for them
    keep_float32: tuple[str, ...] = ()  # names of layers that "bf16" and "fp16" do not round

    def __post_init__(self) -> None:
        if " " in self.kind:
            raise TargetError(
                f"{self.kind!r} is not the kind of a target, but its text.",
                fix=f"Write target={self.kind!r}, or Target.parse({self.kind!r}).",
            )

    @staticmethod
    def parse(text: str | Target | None = None) -> Target:
        """The target of a text such as "llvm -threads=2"; see `parse` of this module."""
        return parse(text)

    @property
    def is_strict(self) -> bool:
        """Whether algorithms that round differently are forbidden."""
        return self.numerics == "strict"

    @property
    def is_gpu(self) -> bool:
        """Whether kernels run as grids of thread blocks."""
        return self.kind in GPU_KINDS

    @property
    def on_cores(self) -> bool:
        """Whether the threads of a block take turns on one core of a processor, rather than run in warps.

        Then a block is an iteration of a parallel loop, and a barrier costs as much as a loop.
        """
        return self.is_gpu and self.warp_size == 1

    @property
    def on_card(self) -> bool:
        """Whether kernels are made for a card: blocks run on its multiprocessors, their threads in warps."""
        return self.is_gpu and not self.on_cores

    @property
    def capability(self) -> int:
        """Compute capability of a CUDA target, 80 for 8.0; 0 if it is not known, and for other targets."""
        number = self.arch.removeprefix("sm_")
        return int(number) if self.kind == "cuda" and number.isdigit() else 0

    def processor(self) -> Target:
        """The target whose schedules suit this one. If blocks run on cores, this is the processor's target.

        It has no features: kernels are source text, so they cannot name an instruction of the processor.
        """
        return replace(self, kind="llvm", arch=host().arch) if self.on_cores else self

    def __repr__(self) -> str:
        """One line, without the features of the processor; `to_json` has everything."""
        return f"Target({self.key()})"

    def key(self) -> str:
        """Name in the tuning log: kind, architecture, vector width, thread count, numerics if strict."""
        plain = f"{self.kind}/{self.arch or 'generic'}/v{self.vector_bytes}/t{self.num_cores}"
        if self.kind == "opencl" and self.on_card:
            plain += "/gpu"
        return f"{plain}/strict" if self.is_strict else plain

    def to_json(self) -> str:
        """Text that `from_json` reads."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Target:
        """The target that `to_json` wrote."""
        return Target.of(json.loads(text))

    @staticmethod
    def of(fields: Mapping[str, Any]) -> Target:
        """The target with these fields; JSON has made lists of the tuples."""
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
        return Target(**plain)

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return max(1, self.vector_bytes * 8 // max(bits, 8))

    @property
    def sum_registers(self) -> int:
        """Vector registers for sums of products and for their operands. If one instruction multiplies and
        adds, these are all registers. Otherwise one register holds a product (15 of 16 for x86-64-v2).
        """
        return self.vector_registers - (not fuses_multiply_add(self))

    def with_threads(self, threads: int) -> Target:
        """The same target with another number of threads."""
        return replace(self, num_cores=threads)


_LEFT_OUT = (
    "device",
    "keys",
    "libs",
    "link-params",
    "mabi",
    "mfloat-abi",
    "model",
    "opt-level",
    "system-lib",
)
_ELSEWHERE = {  # options of TVM's targets → the advice for this project
    **dict.fromkeys(_LEFT_OUT, "Leave it out: kernels are always optimised, and call no library."),
    "host": "Leave it out: the target is one text.",
    "march": "Write -mtriple=aarch64-linux-gnu, say.",
    "num-cores": "Write -threads=N.",
}
_FIRST = ("-arch", "-platform", "-device")  # options that choose the target, which the other options change


def parse(text: str | Target | None = None) -> Target:
    """The target of a text; None or "llvm" is this host.

    Options of "llvm": `-mcpu=NAME`, `-mtriple=TRIPLE` (without a name, the least processor of this triple),
    `-mattr=FEATURES` (the complete list), `-threads=N` (default: as for this host), `-denormals=keep|flush`.
    For "cuda": `-arch=sm_80`. For "opencl": `-platform=NAME`, `-device=cpu|gpu`. For "cuda" and "opencl":
    `-cores=N` (multiprocessors), `-shared-bytes=N`, `-block-threads=N` (limits of one block). For all:
    `-numerics=fast|strict|bf16|fp16`. For "llvm" with bf16 or fp16: `-keep-float32=NAME,…` (layers). Options
    may come in any order. Other kinds are looked for among plug-ins (`base/plugins.py`), which read their own
    options.
    Raises TargetError for an unknown kind or option, and for names that LLVM does not have.
    """
    if isinstance(text, Target):
        return text
    if not isinstance(text, str | None):
        raise TargetError(f"target {text!r} is not text.", fix='Write one such as "llvm -mcpu=znver4".')
    kind, *options = _words("llvm" if text is None else text)
    if kind == "cpu":
        kind = "llvm"
    if kind not in KINDS:
        found = plugin(kind)
        if found is None:
            known = suggest(kind, (*KINDS, *known_kinds()))
            raise TargetError(
                f"target kind {kind!r} is unknown.",
                fix=f'{known} A processor is named as in "llvm -mcpu=znver4".',
            )
        brought: Target = found.target(options)
        return brought
    stated = {name: value for name, _, value in (o.partition("=") for o in options)}
    arch, triple = stated.get("-mcpu", ""), stated.get("-mtriple", "")
    target = host() if kind == "llvm" else gpu(kind) if kind in GPU_KINDS else Target(kind, num_cores=1)
    if kind == "llvm" and (arch or triple):
        target = _named(arch, triple)
    for option in sorted(options, key=lambda o: o.partition("=")[0] not in _FIRST):
        name, _, value = option.partition("=")
        if target.is_gpu and name != "-numerics":
            target = _gpu_option(target, option)
            continue
        match name:
            case "-mcpu" | "-mtriple" if target.kind == "llvm":
                continue  # see `_named`
            case "-mattr":
                target = replace(target, features=value)
                width, registers = vector_limits(features_of(target))
                target = replace(target, vector_bytes=width, vector_registers=registers)
            case "-threads":
                if not value.isdigit() or int(value) < 1:
                    raise TargetError(f"target option {option!r}: threads must be a positive integer.")
                target = replace(target, num_cores=int(value))
            case "-denormals":
                if value not in DENORMALS:
                    raise TargetError(f"denormals {value!r} is unknown.", fix=suggest(value, DENORMALS))
                target = replace(target, denormals=value)
            case "-numerics":
                if value not in NUMERICS:
                    raise TargetError(f"numerics {value!r} is unknown.", fix=suggest(value, NUMERICS))
                target = replace(target, numerics=value)
            case "-keep-float32":
                names = tuple(n.strip() for n in value.split(","))
                if "" in names:
                    raise TargetError(f"target option {option!r} has an empty name.")
                target = replace(target, keep_float32=names)
            case _:
                known = "Known: -mcpu, -mattr, -mtriple, -threads, -numerics, -keep-float32, -denormals."
                raise TargetError(
                    f"target option {option!r} is unknown.", fix=_ELSEWHERE.get(name.lstrip("-"), known)
                )
    if target.keep_float32 and target.numerics not in HALVES:
        raise TargetError(
            f"keep-float32 is given with numerics {target.numerics!r}, which round no layer to 16 bits.",
            fix=f"It is for numerics {' and '.join(HALVES)}.",
        )
    if target.kind == "llvm" and (arch not in ("", "native") or triple or "-mattr" in stated):
        _check_names(target)
    return target


def _check_names(target: Target) -> None:
    """Raises TargetError for a triple, processor or feature that LLVM does not have. LLVM itself would
    compile for the least processor of the family, with a warning that few people would see."""
    triple = target.triple or host().triple
    sentence = objection(family_of(triple), triple, target.arch, target.features)
    if sentence:
        raise TargetError(sentence, fix=advice(sentence, family_of(triple), target.arch))


def gpu(kind: str, arch: str = "") -> Target:
    """A stated GPU. OpenCL is this processor, see `opencl`."""
    if kind == "opencl":
        return opencl(arch)
    arch = arch or DEFAULT_ARCH
    if arch not in CUDA_ARCHS:
        raise TargetError(f"target arch {arch!r} is unknown.", fix=f"Known: {', '.join(CUDA_ARCHS)}.")
    cores, shared_bytes, l2_bytes = CUDA_ARCHS[arch]
    return Target(
        "cuda",
        arch,
        num_cores=cores,
        vector_registers=255,  # of one thread, 32 bits each
        cache_bytes=(128 << 10, l2_bytes),
        warp_size=32,
        max_threads_per_block=1024,
        max_shared_bytes=shared_bytes,
    )


def opencl(platform: str = "", device: str = "cpu") -> Target:
    """OpenCL on this processor, with its vectors and caches, or on a card, with limits of all cards."""
    if device == "cpu":
        return replace(
            host(),
            kind="opencl",
            arch=platform,
            features="",
            triple="",
            num_cores=usable_cores(),
            max_threads_per_block=256,
            max_shared_bytes=32 << 10,
        )
    return Target(
        "opencl",
        platform,
        num_cores=usable_cores(),
        vector_registers=255,
        cache_bytes=(32 << 10, 1 << 20),
        warp_size=OPENCL_WARP,
        max_threads_per_block=256,
        max_shared_bytes=32 << 10,
    )


def _gpu_option(target: Target, option: str) -> Target:
    name, _, value = option.partition("=")
    match (target.kind, name):
        case ("cuda", "-arch"):
            return replace(gpu("cuda", value), numerics=target.numerics)
        case ("opencl", "-platform"):
            return replace(target, arch=value)
        case ("opencl", "-device"):
            if value not in OPENCL_DEVICES:
                known = ", ".join(OPENCL_DEVICES)
                raise TargetError(f"target option {option!r}: device is one of {known}.")
            return replace(opencl(target.arch, value), numerics=target.numerics)
        case (_, "-cores" | "-shared-bytes" | "-block-threads"):
            if not value.isdigit() or int(value) < 1:
                raise TargetError(f"target option {option!r}: {name[1:]} must be a positive integer.")
            field = {"-cores": "num_cores", "-shared-bytes": "max_shared_bytes"}.get(
                name, "max_threads_per_block"
            )
            return replace(target, **{field: int(value)})  # type: ignore[arg-type]
    own = "-arch" if target.kind == "cuda" else "-platform, -device"
    known = f"{own}, -cores, -shared-bytes, -block-threads, -numerics"
    raise TargetError(f"target option {option!r} is unknown.", fix=f"Known: {known}.")


@lru_cache(maxsize=1)
def host() -> Target:
    """This machine: LLVM's name for its CPU, its features, caches and usable cores."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if any(features.get(name) for name in TILES) and not may_use_tiles():
        features.update(dict.fromkeys(TILES, False))  # features that the system does not grant are not used
    width, registers = vector_limits(frozenset(name for name, has in features.items() if has))
    return Target(
        kind="llvm",
        arch=llvm.get_host_cpu_name(),
        features=features.flatten(),
        triple=llvm.get_process_triple(),
        num_cores=default_threads(),
        vector_bytes=width,
        vector_registers=registers,
        cache_bytes=host_caches(),
    )


def _words(text: str) -> list[str]:
    """The words of a target's text, of which there is at least one."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"target {text!r} cannot be read: {str(error).lower()}.") from error
    if not words:
        raise TargetError("the target is an empty text.", fix='Leave it out, or write "llvm": this machine.')
    return words


def _named(arch: str, triple: str) -> Target:
    """The target of a processor's name, or of a triple only. Its limits are from LLVM's tables.

    A processor's name says nothing about the number of threads. It is that of this host, unless `-threads`
    gives another one.
    """
    here = host()
    if arch == "native":
        if triple and family_of(triple) != family_of(here.triple):
            raise TargetError(
                f"target option '-mcpu=native': this machine is no {family_of(triple)}.",
                fix="Name a processor of that family, or leave -mcpu out.",
            )
        return replace(here, triple=triple or here.triple)
    family = family_of(triple) if triple else family_named(arch)
    known = FAMILIES.get(family)
    if not triple and known and family != family_of(here.triple):
        triple = known.triple
    arch = arch or (known.plain if known else "")
    width, registers = vector_limits(features_named(family, arch))
    return Target(
        "llvm",
        arch,
        triple=triple,
        num_cores=default_threads(),
        vector_bytes=width,
        vector_registers=registers,
    )


def features_of(target: Target) -> frozenset[str]:
    """The known features of a processor, in LLVM's names: as stated, or else by its name."""
    if target.features:
        return frozenset(f[1:] for f in target.features.split(",") if f.startswith("+"))
    return features_named(family_of(target.triple or host().triple), target.arch)


@lru_cache(maxsize=64)
def fuses_multiply_add(target: Target) -> bool:
    """Whether the processor multiplies and adds in one instruction; some x86 processors do not."""
    x86 = family_of(target.triple or host().triple) == "x86_64"
    return target.kind != "llvm" or not x86 or "fma" in features_of(target)


@lru_cache(maxsize=64)
def spreads_loads(target: Target) -> bool:
    """Whether one load can fill a register with copies of an element; x86 without AVX needs a shuffle."""
    x86 = family_of(target.triple or host().triple) == "x86_64"
    return target.kind != "llvm" or not x86 or "avx" in features_of(target)


def switched(target: Target) -> str:
    """Features as LLVM takes them. A stated list is complete, so features that the processor's name would add
    are switched off first."""
    listed = target.features.split(",")
    if not all(f.startswith(("+", "-")) for f in listed):
        return target.features  # "", or a text that LLVM refuses
    named = features_named(family_of(target.triple or host().triple), target.arch)
    stated = {f[1:] for f in listed}
    return ",".join([*(f"-{name}" for name in sorted(named - stated)), target.features])


def default_threads() -> int:
    """Threads to use: OMP_NUM_THREADS when it is a positive number, else the cores that we may run on."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return usable_cores()


def usable_cores() -> int:
    """Cores that this process may run on, but no more than the time quota of its control group allows."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, allowed if quota is None else min(allowed, whole_cores(quota)))


def whole_cores(quota: float) -> int:
    """The fastest number of threads under a quota of this number of cores.

    A larger team is stopped for a part of each period; from TEAM_FROM on, it is nevertheless faster.

    >>> whole_cores(0.2), whole_cores(1.0), whole_cores(1.5), whole_cores(3.75)
    (1, 1, 2, 4)
    """
    return max(1, math.floor(quota + 1.0 - TEAM_FROM))


@lru_cache(maxsize=1)
def host_caches() -> tuple[int, ...]:
    """Data cache sizes in bytes, nearest first, from sysfs; a common guess if sysfs has none."""
    found: dict[int, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind in ("Data", "Unified"):
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(size[-1])
            found[level] = int(size[:-1]) * unit if unit else int(size)
    return tuple(found[k] for k in sorted(found)) or (32 << 10, 1 << 20, 32 << 20)
