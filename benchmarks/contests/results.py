"""The JSON file of a table: rows, each measured in several sets of processes. The file is written after every
unit.

    {"machine": {…}, "threads": 2, "rows": {"GMM.s0.b1": {"flops": …, "units": [{contestant: cell}, …]}}}

A unit is one row in one set of processes, with all contestants in turns. A run does not measure units again
that are in its file. So a table can be made in several evenings. A file never holds figures of two machines.
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
    """The machine on which the figures are measured, without names of hosts or paths."""
    m = host_machine()
    versions = {k: v for k, v in environment_versions().items() if k != "system"}
    for package in PEERS:
        if importlib.util.find_spec(package):
            versions[package] = metadata.version(package)
    return {"cpu": m.cpu_model, "cores": m.cores, "caches": list(m.caches), "versions": versions}


@cache
def source_hash() -> str:
    """A short hash of autotensor's source. All rows of a table should have the same version."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for package in ("autotensor", "schedules"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass
class Results:
    """The content of the file, which this class reads and writes."""

    path: Path
    data: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def open(path: Path, threads: int, title: str, *, fresh: bool = False) -> Results:
        """The file's results, or empty results. Raises ValueError for results of another machine or thread
        count."""
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
        """The file's results for a report, from any machine."""
        return Results(path, json.loads(path.read_text()))

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.data["rows"]
        return found

    def has(self, row: str, unit: int, contestants: Sequence[str], *, whole: bool = False) -> bool:
        """Whether the file has the unit with all of these contestants. `whole`: and no contestant failed."""
        units = self.rows.get(row, {}).get("units", [])
        if unit >= len(units):
            return False
        cells = units[unit]["cells"]
        failed = any("failed" in cells.get(c, {}) for c in contestants)
        return set(contestants) <= set(cells) and not (whole and failed)

    def put(self, row: str, unit: int, facts: Mapping[str, Any], cells: Mapping[str, Any]) -> None:
        """Adds a unit, or replaces the unit with that number, and writes the file."""
        entry = self.rows.setdefault(row, {"units": []})
        entry.update(facts)
        made = {"when": time.strftime("%F %T"), "source": source_hash(), "cells": dict(cells)}
        entry["units"][unit : unit + 1] = [made]
        self.write()

    def write(self) -> None:
        """Replaces the file in one step, so that readers never see an incomplete file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        scratch.write_text(json.dumps(self.data, indent=1) + "\n")
        os.replace(scratch, self.path)

    def sources(self) -> set[str]:
        """The versions of autotensor's source among the units."""
        return {u["source"] for row in self.rows.values() for u in row["units"]}


def times(row: Mapping[str, Any], contestant: str, which: str = "median") -> list[float | None]:
    """A contestant's time in every unit; None where it has none."""
    return [u["cells"].get(contestant, {}).get(which) for u in row["units"]]
