"""The commands of docs/security.md sign a file, where the tools are installed, and find a change."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), flags=re.S)


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    return subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, "GNUPGHOME": str(home), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("tool", ["openssl", "ssh-keygen", "gpg"])
def test_signing(tool: str, tmp_path: Path) -> None:
    (script,) = (b for b in BLOCKS if b.startswith(tool))
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    (tmp_path / "model.atm").write_bytes(b"a model")
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "model.atm").write_bytes(b"another model")
    assert run(script.strip().splitlines()[-1], tmp_path).returncode != 0
