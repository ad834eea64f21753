"""The JSON behind a table: rows, each measured in several sets of processes; kept after every unit.

    {"machine": {…}, "threads": 2, "rows": {"GMM.s0.b1": {"flops": …, "units": [{contestant: cell}, …]}}}

A unit is one row in one set of processes, all contestants in turns. What a run finds in its file it does not
measure again, so that a table can be made in several evenings; figures of two machines never meet in one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from autotensor.base.machine import environment_versions, host_machine

PEERS = ("torch", "onnxruntime", "openvino", "numpy", "jax", "numba", "opt_einsum")


def machine() -> dict[str, Any]:
    """What the figures were measured on; no names of hosts or paths."""
    m = host_machine()
    versions = {k: v for k, v in environment_versions().items() if k != "system"}
    for package in PEERS:
        if importlib.util.find_spec(package):
            versions[package] = metadata.version(package)
    return {"cpu": m.cpu_model, "cores": m.cores, "caches": list(m.caches), "versions": versions}


@cache
def source_hash() -> str:
    """Short hash of our source: rows of one table should be of one version."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in ("autotensor", "schedules"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass
class Results:
    """The file's content, and writing it."""

    path: Path
    data: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def open(path: Path, threads: int, title: str, *, fresh: bool = False) -> Results:
        """The file's results, or none yet. Raises ValueError for those of another machine or thread count."""
        empty = {"title": title, "machine": machine(), "threads": threads, "tuning": {}, "rows": {}}
        if fresh or not path.exists():
            return Results(path, empty)
        data = json.loads(path.read_text())
        if data.get("threads") != threads or data["machine"] != machine():
            raise ValueError(
                f"{path} holds figures of another machine, other versions or {data.get('threads')} threads. "
                "Name another file with --json, or start anew with --fresh."
            )
        return Results(path, {**empty, **data})

    @staticmethod
    def read(path: Path) -> Results:
        """The file's results as they are, of whatever machine, for a report."""
        return Results(path, json.loads(path.read_text()))

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.data["rows"]
        return found

    def has(self, row: str, unit: int, contestants: Sequence[str], *, whole: bool = False) -> bool:
        """Whether the unit is there, with all of these contestants; `whole`: and none of them failed."""
        units = self.rows.get(row, {}).get("units", [])
        if unit >= len(units):
            return False
        cells = units[unit]["cells"]
        failed = any("failed" in cells.get(c, {}) for c in contestants)
        return set(contestants) <= set(cells) and not (whole and failed)

    def put(self, row: str, unit: int, facts: Mapping[str, Any], cells: Mapping[str, Any]) -> None:
        """Keeps a unit, in place of an older one of that number, and writes the file."""
        entry = self.rows.setdefault(row, {"units": []})
        entry.update(facts)
        made = {"when": time.strftime("%F %T"), "source": source_hash(), "cells": dict(cells)}
        entry["units"][unit : unit + 1] = [made]
        self.write()

    def write(self) -> None:
        """Replaces the file at once: who reads it never sees half of it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(scratch, self.path)

    def sources(self) -> set[str]:
        """Versions of our source among the units."""
        return {u["source"] for row in self.rows.values() for u in row["units"]}


def times(row: Mapping[str, Any], contestant: str, which: str = "median") -> list[float | None]:
    """A contestant's time in every unit; None where it has none."""
    return [u["cells"].get(contestant, {}).get(which) for u in row["units"]]
