"""An ensemble as a file: JSON with the version and names of its features, which must match on loading.

    {"autotensor_model": 1, "schema": 3, "features": […], "rows": 2000, "levels": {"": 0.1},
     "boosters": [trees, …], "validity": trees or null, "start": null or the same again,
     "share": 1.0, "weight": 0.9, "noise": 0.2}

The file is compressed if its name ends in `.gz`. The levels of single workloads are left out, because they
change with the machine and with the code generator. The order within a workload, which the trees have
learned, does not change.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from autotensor.base.errors import InputError
from autotensor.search.score.boosted.ensemble import NOISE, Ensemble
from autotensor.search.score.features import NAMES, SCHEMA

FORMAT = 1


def save(ensemble: Ensemble, path: Path) -> None:
    head = {"autotensor_model": FORMAT, "schema": SCHEMA, "features": list(NAMES)}
    text = json.dumps({**head, **_to_json(ensemble)}, separators=(",", ":")).encode()
    # mtime=0, so that the same model gives the same bytes
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def load(path: Path) -> Ensemble:
    """The ensemble in a file. Raises InputError for another kind of file, or one with other features."""
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        kind, schema, names = data["autotensor_model"], data["schema"], data["features"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a saved cost model: {error}") from error
    if (kind, schema, names) != (FORMAT, SCHEMA, list(NAMES)):
        raise InputError(
            f"the cost model in {path} was fitted to features of version {schema}; this is version {SCHEMA}.",
            fix="Fit it anew, from a tuning log.",
        )
    try:
        return _from_json(data)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"the cost model in {path} is damaged: {error}") from error


def _to_json(ensemble: Ensemble) -> dict[str, Any]:
    return {
        "rows": ensemble.rows,
        "levels": {"": ensemble.levels[""]},
        "boosters": [_trees(b) for b in ensemble.boosters],
        "validity": None if ensemble.validity is None else _trees(ensemble.validity),
        "start": None if ensemble.start is None else _to_json(ensemble.start),
        "share": ensemble.share,
        "weight": ensemble.weight,
        "noise": ensemble.noise,
    }


def _from_json(data: dict[str, Any]) -> Ensemble:
    return Ensemble(
        tuple(_booster(t) for t in data["boosters"]),
        {"": float(data["levels"][""])},
        int(data["rows"]),
        None if data["validity"] is None else _booster(data["validity"]),
        None if data["start"] is None else _from_json(data["start"]),
        float(data.get("share", 1.0)),  # files from before 2026-12 do not have it
        float(data.get("weight", 1.0)),  # files from before 2026-11-23 have neither this nor the following
        float(data.get("noise", NOISE)),
    )


def _trees(booster: Any) -> Any:
    return json.loads(booster.save_raw("json"))


def _booster(trees: Any) -> Any:
    import xgboost as xgb

    booster = xgb.Booster()
    booster.load_model(bytearray(json.dumps(trees).encode()))
    booster.set_param({"nthread": 1})
    return booster
