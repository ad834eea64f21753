"""Lets this folder share `codegen_kernels` and `interp_tools`; importlib mode adds no folder to the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
