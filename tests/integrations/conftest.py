"""Adds the helpers of the front ends to the path, because importlib mode does not."""

import sys
from pathlib import Path

if str(Path(__file__).parents[1] / "frontends") not in sys.path:
    sys.path.append(str(Path(__file__).parents[1] / "frontends"))
