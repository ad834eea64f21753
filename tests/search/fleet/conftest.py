"""Lets the tests of this folder share their helpers; importlib mode adds no folder to the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
