"""Separate environments for libraries that need different versions of torch.

    python benchmarks/peers/environments.py            makes the missing ones (some gigabytes)
    python benchmarks/peers/environments.py xla iree   only these two

An environment does not contain autotensor. A contestant's process imports the few modules that it needs to
talk to its parent from the source tree.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers.peer_spec import cache_folder


@dataclass(frozen=True)
class Environment:
    """The libraries of an environment, and the packages to install. The version of the first package is the
    library's."""

    kinds: tuple[str, ...]
    packages: tuple[str, ...]


ALWAYS = ("numpy", "platformdirs")
ENVIRONMENTS = {
    "files": Environment(
        ("iree", "tinygrad", "ncnn", "mnn"),
        ("iree-base-compiler", "iree-base-runtime", "tinygrad", "ncnn", "pnnx", "MNN", "onnx"),
    ),
    "xla": Environment(("xla",), ("jax", "torchax", "torch==2.9.1")),  # torchax supports no later torch
    # its binary is for this version of torch only
    "zentorch": Environment(("zentorch",), ("zentorch", "torch==2.14.1")),
    "litert": Environment(("litert",), ("litert-torch",)),
    "halide": Environment(("halide-mullapudi2016", "halide-adams2019", "halide-li2018"), ("halide",)),
    "executorch": Environment(("executorch",), ("executorch", "torch==2.13.0")),
}
# library → the package whose version is in the table
PACKAGES = {
    "iree": "iree-base-compiler", "mnn": "MNN", "xla": "jax", "litert": "ai-edge-litert",
    "halide-mullapudi2016": "halide", "halide-adams2019": "halide", "halide-li2018": "halide",
    "inductor": "torch", "backend": "autotensor", "ours": "autotensor", "tvm": "apache-tvm",
}  # fmt: skip


def python_of(kind: str) -> str:
    """The Python interpreter for a library: this one, or that of the library's environment."""
    name = next((n for n, e in ENVIRONMENTS.items() if kind in e.kinds), None)
    return sys.executable if name is None else str(_folder(name) / "bin" / "python")


def make(names: tuple[str, ...] = ()) -> None:
    """Makes the environments that are missing. Raises KeyError for an unknown name."""
    for name in names or tuple(ENVIRONMENTS):
        environment, folder = ENVIRONMENTS[name], _folder(name)
        if (folder / "made").exists():
            continue
        print(f"{name}: installing {', '.join(environment.packages)}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        done = subprocess.run([*pip, *ALWAYS, *environment.packages], capture_output=True, text=True)
        if done.returncode:
            print(f"{name} cannot be made, without it: {', '.join(environment.kinds)}. {done.stderr[-500:]}")
            continue
        (folder / "made").touch()


def _folder(name: str) -> Path:
    return Path(cache_folder()) / "environments" / name


if __name__ == "__main__":
    make(tuple(sys.argv[1:]))
