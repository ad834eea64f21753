"""Links an object to a shared library, if this machine has a linker."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

from autotensor.runtime.files.atomic_write import replacing

_COMPILERS = ("cc", "gcc", "clang")  # these know where the libraries are
_LINKERS = ("ld.lld", "ld")
# nodelete: threads of the pool run the library's code until the process ends, even if the library is closed
_OPTIONS = ("-z", "nodelete", "-z", "noexecstack", "-z", "relro", "-z", "now")
_TIMEOUT_S = 120.0


def link_shared(source: Path, path: Path, triple: str) -> tuple[Path | None, str]:
    """Links the object `source`. Returns the library's path, or None and the reason. If there is no new
    library, an old one at `path` is deleted, because it belongs to another model."""
    why = _linked(source, path, triple)
    if why:
        path.unlink(missing_ok=True)
        return None, f"no {path.name}: {why}"
    return path, ""


def _linked(source: Path, path: Path, triple: str) -> str:
    """Replaces the library in one step. Returns the reason if that is impossible, or ""."""
    if triple.partition("-")[0] != str(llvm.get_process_triple()).partition("-")[0]:
        return f"it is for {triple}, and linkers are tried for this machine only"
    command = _command(source, path.name)
    if not command:
        return f"of {', '.join((*_COMPILERS, *_LINKERS))} none is here"
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        try:
            done = subprocess.run(
                [*command, "-o", str(made)],
                capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{command[0]} cannot be run: {error}"
        if done.returncode != 0 or not made.is_file():
            said = " ".join(done.stderr.split())[:200]
            return f"{command[0]} says: {said}"
        with replacing(path, mode=0o777) as out:
            out.write(made.read_bytes())
    return ""


def _command(source: Path, soname: str) -> list[str]:
    """The command that links `source`, without the name of the output; empty if there is no linker."""
    for name in _COMPILERS:
        if found := shutil.which(name):
            options = [f"-Wl,{','.join(_OPTIONS)}", f"-Wl,-soname,{soname}"]
            return [found, "-shared", str(source), *options, "-lm", "-pthread"]
    for name in _LINKERS:
        if found := shutil.which(name):
            libraries = ["-l:libm.so.6", "-l:libc.so.6"]
            return [found, "-shared", str(source), *_OPTIONS, "-soname", soname, *libraries]
    return []


__all__ = ["link_shared"]
