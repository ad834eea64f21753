"""Damaged files, and files of torch, where a compiled model or a model to compile is expected."""

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


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text"])
def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.atm"
    assert cli("compile", "mlp", "-o", str(path)).code == 0
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    whole = {"flipped": data, "cut": data[: len(data) // 3], "empty": b"", "text": b"hello\n" * 50}
    path.write_bytes(whole[damage])
    for verb in ("run", "bench"):
        said = cli(verb, str(path))
        assert (said.code, said.out) == (1, "")
        assert "m.atm" in said.err
        assert len(said.err.strip().splitlines()) == 1
