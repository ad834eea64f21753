"""One loaded model, many threads: calls share the weights and nothing else.

    python examples/06_load_and_serve.py [MODEL.atm] [--clients 8] [--calls 200]

Without a file it compiles the small digit network first. Loading needs NumPy and llvmlite only.
"""

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import autotensor as at

options = argparse.ArgumentParser()
options.add_argument("file", nargs="?")
options.add_argument("--clients", type=int, default=8)
options.add_argument("--calls", type=int, default=200)
asked = options.parse_args()


def compiled(folder: str) -> Path:
    """Compiles small_cnn, with the schedules that are in the log, and returns its file."""
    from autotensor.models import MODELS

    path = Path(folder) / "small_cnn.atm"
    at.compile_model(MODELS.get("small_cnn").build()).save(path)
    return path


with tempfile.TemporaryDirectory() as folder:
    path = asked.file or compiled(folder)
    started = time.perf_counter()
    model = at.load(path, threads=1)  # clients are parallel already
    print(f"{model}\nloaded in {time.perf_counter() - started:.3f} s")

print("\nkernels:")
for kernel in model.artifact.meta.get("kernels", ()):
    print(f"  {kernel['name']}")
print("\nschedule of the first (in canonical names):")
print(next((text for name, text in model.artifact.texts.items() if name.startswith("trace")), ""))

(spec,) = [a for a in model.args if a.role == "input"]
rng = np.random.default_rng(0)
requests = [rng.random(spec.shape).astype(spec.dtype) for _ in range(asked.calls)]
expected = [model(r) for r in requests]


def client(_: int) -> bool:
    return all(np.array_equal(model(r), e) for r, e in zip(requests, expected, strict=True))


started = time.perf_counter()
with ThreadPoolExecutor(asked.clients) as pool:
    equal = all(pool.map(client, range(asked.clients)))
seconds = time.perf_counter() - started
assert equal
total = asked.clients * asked.calls
print(
    f"\ntime: {total} calls from {asked.clients} threads in {seconds:.3f} s, {total / seconds:.0f} a second"
)
print("      all equal to the serial ones")
