"""`at.from_torch` where torch is not installed."""

from __future__ import annotations

import sys

import pytest

import autotensor as at
from autotensor.base.errors import InputError


def test_torch_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if torch were not installed
    with pytest.raises(InputError, match=r"needs the package torch, .* pip install 'autotensor\[torch\]'"):
        at.from_torch(object(), ())
