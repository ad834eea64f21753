"""This machine, as the tuning log records it: a description and its fingerprint."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from autotensor.base.target import host, host_caches


@dataclass(frozen=True, slots=True)
class HostMachine:
    """The facts that decide how fast a kernel runs on this machine. Two machines with the same fingerprint
    may share records."""

    cpu_model: str
    features: tuple[str, ...]
    cores: int
    caches: tuple[int, ...]  # bytes, nearest first

    @property
    def fingerprint(self) -> str:
        text = json.dumps([self.cpu_model, self.features, self.cores, self.caches])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@lru_cache(maxsize=1)
def host_machine() -> HostMachine:
    import psutil

    target = host()
    features = tuple(sorted(f[1:] for f in target.features.split(",") if f.startswith("+")))
    return HostMachine(_cpu_model(), features, psutil.cpu_count(logical=True) or 1, host_caches())


def _cpu_model() -> str:
    """The system's name of the model, with family numbers: in virtual machines, the name says little."""
    facts: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    except OSError:
        return f"{platform.machine()} {platform.processor()}".strip()
    name = facts.get("model name", platform.machine())
    numbers = [facts[k] for k in ("cpu family", "model", "stepping") if k in facts]
    return f"{name} ({'/'.join(numbers)})" if numbers else name


@lru_cache(maxsize=1)
def environment_versions() -> dict[str, str]:
    """Versions of the software that affects generated code and timings."""
    found = {"python": platform.python_version(), "system": f"{sys.platform} {platform.release()}"}
    for package in ("autotensor", "numpy", "llvmlite", "xgboost-cpu", "xgboost", "sqlalchemy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
