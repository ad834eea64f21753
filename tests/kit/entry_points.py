"""Our entry points for a process that runs this source tree: an installation may be older than the tree."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declared(folder: Path) -> dict[str, str]:
    """Environment variables under which Python finds what pyproject.toml declares; `folder` is written to."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = folder / "declared" / "autotensor_tree-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: autotensor-tree\nVersion: 0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(info.parent), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
