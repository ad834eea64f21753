"""Finds the parts of a card's software and hardware on this machine, without CuPy or a driver, and says what
is missing.

found = what_is_here()      {"cards on the bus": ["0000:01:00.0"], "driver": None, "cupy": "14.2.0", …}
what_to_do(found)           ["Install NVIDIA's driver: …"]; [] if nothing is missing
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from autotensor.codegen.c import nvrtc

_NVIDIA, _DISPLAY = "0x10de", "0x03"  # numbers of PCI: the vendor and the class of a device
_PACKAGES = ("cupy", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "torch", "numpy")
ANSWER_S = 20.0


def what_is_here(root: Path = Path("/")) -> dict[str, Any]:
    """Facts by their names in the report. root: the root folder of the system's files."""
    driver = _text(root / "proc" / "driver" / "nvidia" / "version").splitlines()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": sys.version.split()[0],
        "cards on the bus": [
            p.name
            for p in sorted((root / "sys" / "bus" / "pci" / "devices").glob("*"))
            if _text(p / "vendor") == _NVIDIA and _text(p / "class").startswith(_DISPLAY)
        ],
        "driver": driver[0] if driver else None,
        "device files": sorted(p.name for p in (root / "dev").glob("nvidia[0-9]*")),
        "in WSL": (root / "dev" / "dxg").exists(),
        "nvidia-smi": _cards_by_its_tool(),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "NVRTC": nvrtc.version() or None,
        "packages": _packages(),
    }


def what_to_do(found: Mapping[str, Any]) -> list[str]:
    """Sentences that say what to install, the first cause first."""
    told = any(line.startswith("GPU ") for line in found["nvidia-smi"])
    seen = told or found["device files"] or found["in WSL"]
    names = found["packages"]
    out = []
    if not (found["cards on the bus"] or found["driver"] or seen):
        out.append(
            "No NVIDIA card is on this machine: run the same command on one that has a card. "
            "`python benchmarks/gpu.py --rehearse` does all of it here, on a card made of NumPy."
        )
    elif not (found["driver"] or seen):
        out.append(
            "A card is there and no driver: install NVIDIA's driver, and see that `nvidia-smi -L` names it."
        )
    elif not seen:
        out.append(
            "The driver is there and no device file: in a container, start it with `--gpus all` and NVIDIA's "
            "container toolkit; else load the module nvidia_uvm."
        )
    if found["CUDA_VISIBLE_DEVICES"] in ("", "-1"):
        out.append("CUDA_VISIBLE_DEVICES hides every card: unset it.")
    if not any(n.startswith("cupy") for n in names):
        out.append("CuPy is missing: pip install '.[cuda12x]', or '.[cuda13x]' for a driver of CUDA 13.")
    elif found["NVRTC"] is None:
        out.append("NVRTC, the compiler, is missing: pip install '.[cuda12x]', or '.[cuda13x]', brings it.")
    if len([n for n in names if n.startswith("cupy")]) > 1:
        out.append("There are several CuPys, which overwrite each other: uninstall all but one.")
    return out


def _packages() -> dict[str, str]:
    found = {(d.metadata["Name"] or "").lower(): d.version for d in distributions()}
    return {
        n: v for n, v in sorted(found.items()) if any(n == p or n.startswith(f"{p}-cu") for p in _PACKAGES)
    }


def _cards_by_its_tool() -> list[str]:
    """The output of `nvidia-smi -L`, if this tool exists."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"no answer: {error}"]
    return [line.strip() for line in (done.stdout or done.stderr).splitlines() if line.strip()]


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
