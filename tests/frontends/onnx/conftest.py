"""Adds this folder to the path, because importlib mode does not. Without onnx, no test is collected."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("onnx") is None else []
if importlib.util.find_spec("onnxruntime") is None:
    collect_ignore_glob += ["test_light_models.py", "test_random_models.py"]
