"""`autotensor models`: the built-in models."""

from __future__ import annotations

from autotensor.cli.options import AsJson, example, new_app
from autotensor.cli.output import put_json, table

app = new_app()


@app.command(epilog=example("autotensor models", "autotensor models --json"))
def models(json: AsJson = False) -> None:
    """List the built-in models."""
    from autotensor.cli.inputs import TRAINED
    from autotensor.models import MODELS

    rows = [
        (name, m.about, "come with it" if name in TRAINED else "random, or --weights FILE")
        for name, m in MODELS.items()
    ]
    if json:
        put_json([dict(zip(("name", "about", "weights"), row, strict=True)) for row in rows])
    else:
        table(("model", "what it is", "weights"), rows)
