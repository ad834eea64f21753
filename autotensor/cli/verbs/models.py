"""`autotensor models`: the built-in models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotensor.cli.options import AsJson, example, new_app
from autotensor.cli.output import put_json, say, table

if TYPE_CHECKING:
    from autotensor.models import Model

app = new_app()
RANDOM = "random, or --weights FILE"


@app.command(epilog=example("autotensor models", "autotensor models --json"))
def models(json: AsJson = False) -> None:
    """List the built-in models: parameters, work of one inference, inputs at batch 1."""
    from autotensor.cli.inputs import TRAINED
    from autotensor.models import MODELS

    rows = [
        (name, m.about, m.parameters, m.gflop, _inputs(m), "come with it" if name in TRAINED else RANDOM)
        for name, m in MODELS.items()
    ]
    if json:
        heads = ("name", "about", "parameters", "gflop", "inputs", "weights")
        put_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        table(
            ("model", "what it is", "parameters", "GFLOP", "inputs"),
            [(name, about, _millions(n), work, what) for name, about, n, work, what, _ in rows],
        )
        own = ", ".join(name for name in MODELS if name in TRAINED)
        say(f"weights: random, or --weights FILE; those of {own} come with it.")


def _inputs(model: Model) -> str:
    """ "x: float32[1, 3, 224, 224]"."""
    import numpy as np

    arrays = model.inputs(np.random.default_rng(0))
    return ", ".join(f"{n}: {a.dtype}[{', '.join(map(str, a.shape))}]" for n, a in arrays.items())


def _millions(count: int | None) -> str | None:
    """
    >>> _millions(25_557_032), _millions(15_418)
    ('25.6 M', '0.0154 M')
    """
    return None if count is None else f"{count / 1e6:.3g} M"
