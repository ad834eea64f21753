"""Entry points of packages that need not be installed: metadata in a folder from which Python imports."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def installed(folder: Path, name: str, points: Mapping[str, Mapping[str, str]]) -> Path:
    """Declares a package in `folder`, as an installation would. names: group → name → "module:attribute"."""
    info = folder / f"{name.replace('-', '_')}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{point} = {where}\n" for point, where in mine.items())
        for group, mine in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def declared(folder: Path) -> dict[str, str]:
    """Environment variables under which Python finds what pyproject.toml declares; `folder` is written to.

    They are for a process that runs this source tree, because an installation may be older.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    place = installed(folder / "declared", "autotensor-tree", project["entry-points"])
    paths = [str(place), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
