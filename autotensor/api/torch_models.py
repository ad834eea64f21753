"""PyTorch modules as graphs, where torch is installed.

graph = from_torch(module, (example,))      then compile_model, plan_model, tune_model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError
from autotensor.graph.ir import Graph

if TYPE_CHECKING:
    import torch


def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_inputs: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    name: str = "",
) -> Graph:
    """A PyTorch module as a graph, by torch.export: shapes and types are the examples', weights constants.

    example_inputs, example_kwargs: what the module is called with. A module that is exported already needs
    none. Inputs keep the names of forward's arguments; results in a dictionary keep their keys, and None
    among the results is left out.
    Raises Unsupported naming the operator and the line of the model for what cannot be converted, and
    InputError where torch is not installed.
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            "reading PyTorch modules needs the package torch, which is not installed.",
            fix="pip install 'autotensor[torch]'",
        ) from error
    from autotensor.frontends.torch import from_torch as convert

    return convert(module, example_inputs, example_kwargs, name=name)
