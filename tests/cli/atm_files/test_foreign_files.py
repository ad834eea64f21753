"""Files of torch where a compiled model or a model to compile is expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import cli

import autotensor as at


@pytest.mark.parametrize("verb", ["tune", "compile", "run", "bench"])
def test_pickled_files_are_refused_by_every_verb(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    path.write_bytes(b"PK")
    said = cli(verb, str(path))
    assert said.code == 1
    assert f"{path} is a pickled file, which does not hold the module's operators. Export" in " ".join(
        said.err.split()
    )


@pytest.mark.parametrize("name", ["net.pt2", "net.pth"])
def test_files_of_torch_are_not_compiled_ones(name: str) -> None:
    with pytest.raises(at.AutotensorError, match=f"{name} is a file of torch, not a compiled model"):
        at.load(name)
