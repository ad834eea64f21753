"""PyTorch modules as graphs, where torch is installed.

graph = from_torch(module, (example,))      then compile_model, plan_model, tune_model
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base import log
from autotensor.base.absent_names import takes_its_names
from autotensor.base.errors import InputError
from autotensor.graph.ir import Graph
from autotensor.graph.symbols.open_graphs import OpenGraph

if TYPE_CHECKING:
    import torch


def load_exported(path: str | Path) -> torch.export.ExportedProgram:
    """The program in a file of torch.export.save. Raises InputError for another file."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}.")
    torch = _torch()
    try:
        with warnings.catch_warnings(), log.silent("torch.export"):
            warnings.simplefilter("ignore")  # torch warns about its own internals
            return torch.export.load(path)
    except Exception as error:  # torch raises many kinds
        words = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(
            f"{path} is not a program of torch.export: {words}.",
            fix=f"Write one: torch.export.save(torch.export.export(net, (x,)), {str(path)!r}).",
        ) from error


@takes_its_names("at.from_torch", {"input_infos": "Shapes are those of the example inputs."})
def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str = "",
) -> Graph | OpenGraph:
    """A PyTorch module as a graph, by torch.export. Inputs have the examples' shapes and types; weights
    become constants.

    example_inputs, example_kwargs: arguments of a call of the module. A module that is exported already needs
    no examples.
    dynamic_shapes: extents that a call may choose, as torch.export.export takes them: {"x": {0: Dim("batch",
    max=64)}}. compile_model then makes one program for all of them.
    Inputs keep the names of forward's arguments; results in a dictionary keep their keys, and None
    among the results is left out.
    Raises Unsupported for an operator that cannot be converted (the error names the line of the model), and
    InputError if torch is not installed.
    """
    _torch()
    from autotensor.frontends.torch import from_torch as convert

    return convert(module, example_inputs, example_kwargs, dynamic_shapes=dynamic_shapes, name=name)


def _torch() -> Any:
    try:
        import torch
        import torch.export
    except ImportError as error:
        raise InputError(
            "reading PyTorch modules needs the package torch, which is not installed.",
            fix="pip install 'autotensor[torch]'",
        ) from error
    return torch
