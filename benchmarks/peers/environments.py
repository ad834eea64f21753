"""Libraries that want an environment of their own, for their versions of torch exclude one another.

    python benchmarks/peers/environments.py            makes those that are missing (some gigabytes)
    python benchmarks/peers/environments.py xla iree   only these

An environment holds its packages and nothing of ours: a contestant's process imports autotensor's few modules
for talking to its parent from the source tree.
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
    """Who lives in it, and what is installed for them; the first package's version is the library's."""

    kinds: tuple[str, ...]
    packages: tuple[str, ...]


ALWAYS = ("numpy", "platformdirs")
ENVIRONMENTS = {
    "files": Environment(
        ("iree", "tinygrad", "ncnn", "mnn"),
        ("iree-base-compiler", "iree-base-runtime", "tinygrad", "ncnn", "pnnx", "MNN", "onnx"),
    ),
    "xla": Environment(("xla",), ("jax", "torchax", "torch==2.9.1")),  # torchax knows no later torch
    "zentorch": Environment(("zentorch",), ("zentorch", "torch==2.14.1")),  # its binary is for one torch
    "litert": Environment(("litert",), ("litert-torch",)),
    "halide": Environment(("halide-mullapudi2016", "halide-adams2019", "halide-li2018"), ("halide",)),
    "executorch": Environment(("executorch",), ("executorch", "torch==2.13.0")),
}
# whose version stands in the table
PACKAGES = {
    "iree": "iree-base-compiler", "mnn": "MNN", "xla": "jax", "litert": "ai-edge-litert",
    "halide-mullapudi2016": "halide", "halide-adams2019": "halide", "halide-li2018": "halide",
    "inductor": "torch", "backend": "autotensor", "ours": "autotensor", "tvm": "apache-tvm",
}  # fmt: skip


def python_of(kind: str) -> str:
    """The interpreter in which a library lives: this one, or that of its environment."""
    name = next((n for n, e in ENVIRONMENTS.items() if kind in e.kinds), None)
    return sys.executable if name is None else str(_folder(name) / "bin" / "python")


def make(names: tuple[str, ...] = ()) -> None:
    """Makes the environments that are missing. Raises KeyError for a name that there is not."""
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
