"""An ONNX file: called directly, then compiled for one shape and saved.

    python examples/10_onnx_model.py [model.onnx]

Without a file, it first writes a small network like an exporter: the batch size is open.
Needs the package onnx (pip install 'autotensor[onnx]').
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import autotensor as at

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise SystemExit("This example needs the package onnx: pip install 'autotensor[onnx]'.") from None

options = argparse.ArgumentParser()
options.add_argument("file", nargs="?")
asked = options.parse_args()


def written(folder: str) -> Path:
    """Writes conv 3x3, relu, max pool, flatten (batch, -1), dense, in the form in which torch exports
    them."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(np.float32) / 5,
        "dense": rng.standard_normal((10, 512)).astype(np.float32) / 20,
        "zero": np.array([0]),
        "rest": np.array([-1]),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["c"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["c", "flat"], ["d"]),
        helper.make_node("Gemm", ["d", "dense"], ["scores"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(a, name) for name, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = Path(folder) / "small.onnx"
    onnx.save(model, path)
    return path


with tempfile.TemporaryDirectory() as folder:
    path = asked.file or written(folder)
    model = at.OnnxModel(path)
    print(f"{model}: takes any batch, compiled for each that it meets")
    rng = np.random.default_rng(1)
    images = rng.standard_normal((4, 3, 16, 16)).astype(np.float32)
    if asked.file is None:
        (scores,) = model(images)
        print(f"four images give {scores.shape}, one gives {model(images[:1])[0].shape}\n")

    graph = at.from_onnx(path, shapes=None if asked.file else {"n": 4})
    print(f"graph:\n{graph}\n")
    compiled = at.compile_model(graph)  # at.tune_model(at.plan_model(graph), …) searches first
    compiled.save(Path(folder) / "small.atm")
    loaded = at.load(Path(folder) / "small.atm")

print("schedule of the first kernel (in canonical names):")
print(next(text for name, text in loaded.artifact.texts.items() if name.startswith("trace")))
if asked.file is None:
    np.testing.assert_allclose(loaded(images), scores, rtol=1e-5, atol=1e-6)
started = time.perf_counter()
arrays = [np.zeros(a.shape, a.dtype) for a in loaded.args if a.role == "input"]
for _ in range(100):
    loaded(*arrays)
print(f"\ntime: {(time.perf_counter() - started) * 1e4:.0f} us a call")
