"""A drawn architecture as a contestant's job: `timm:resnet18`, `transformers:bert`.

`prepare` writes the files that all contestants share into a folder, in a separate process:

    <cache>/architectures/timm:resnet18/   inputs.npz  model.onnx  default.atm  facts.json

Models of transformers have the sizes of their configurations, not the small sizes that architectures.py uses.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nets.architecture_frames import Excluded, made
from peers import Ready, Skip, Spec, cache_folder
from torch.utils._pytree import tree_flatten, tree_unflatten

Array = np.ndarray[Any, np.dtype[Any]]


class Flat(torch.nn.Module):
    """A module that takes the tensors of all its arguments as one list, and returns its first result."""

    def __init__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.given, self.spec = tree_flatten((args, kwargs))

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        left = iter(tensors)
        values = [next(left) if isinstance(v, torch.Tensor) else v for v in self.given]
        args, kwargs = tree_unflatten(values, self.spec)
        result = self.module(*args, **kwargs)
        while not isinstance(result, torch.Tensor):
            result = next(iter(result.values() if isinstance(result, dict) else result))
        return result


@dataclass
class Drawn:
    """An architecture with random weights."""

    library: str
    name: str
    channels_last = 2

    @classmethod
    def named(cls, name: str) -> Drawn:
        return cls(*name.split(":", 1))

    @property
    def folder(self) -> Path:
        return Path(cache_folder()) / "architectures" / f"{self.library}:{self.name}"

    @cached_property
    def _made(self) -> tuple[Flat, list[torch.Tensor]]:
        """Raises Excluded."""
        module, args, kwargs = made(self.library, self.name, whole=True)
        given = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
        return Flat(module, args, kwargs).eval(), given

    def module(self) -> Flat:
        return self._made[0]

    @property
    def arrays(self) -> tuple[list[Array], dict[str, Array]]:
        with np.load(self.folder / "inputs.npz") as found:
            return [found[n] for n in sorted(found.files)], {}

    def onnx(self) -> str:
        path = self.folder / "model.onnx"
        if not path.exists():
            raise Skip("torch cannot write it as ONNX")
        return str(path)

    def ours(self, spec: Spec) -> Ready:
        """The compiled file, with given output arrays."""
        import autotensor as at

        f = at.load(self.folder / "default.atm", threads=spec.threads)
        inputs = self.arrays[0]
        out = np.array(f(*inputs))

        def run() -> None:
            f(*inputs, out)

        def output() -> Array:
            out[...] = 0
            run()
            return out

        return run, output

    def prepare(self, specs: list[Spec]) -> dict[str, Any]:
        """Writes the folder. Returns the facts for the table."""
        import autotensor as at
        from autotensor.api.models import plan_model
        from jobs.operator_job import target_of

        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()
        try:
            module, given = self._made
        except Excluded as why:
            raise Skip(str(why)) from why
        np.savez(self.folder / "inputs.npz", **{f"x{n:02}": x.numpy() for n, x in enumerate(given)})
        target = target_of(specs[0])
        graph = at.from_torch(module, tuple(given))
        plan = plan_model(graph, target)
        at.compile_model(graph, target=target, db=":memory:").save(self.folder / "default.atm")
        facts = {"flops": float(sum(g.flops for g in plan.groups)), "kind": _kind(plan.graph)}
        (self.folder / "facts.json").write_text(json.dumps(facts))
        return {"facts": facts, "notes": self._write_onnx(module, given)}

    def _write_onnx(self, module: Flat, given: list[torch.Tensor]) -> list[str]:
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        try:
            with torch.no_grad():
                program = torch.onnx.export(module, tuple(given), dynamo=True, verbose=False)
            assert program is not None
            program.save(str(self.folder / "model.onnx"))
        except Exception as error:
            return [f"no ONNX file: {type(error).__name__}: {str(error)[:200]}"]
        return []

    def facts(self) -> Mapping[str, Any]:
        path = self.folder / "facts.json"
        found: Mapping[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found


def _kind(graph: Any) -> str:
    """The kind of a graph: "transformer" if it has attention, else convolutional."""
    ops = {getattr(node, "op", "") for node in graph.nodes}
    return "transformer" if any("attention" in str(op) for op in ops) else "convolutional"
