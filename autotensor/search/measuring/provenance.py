"""The identity and the code of a measuring process. A tuning log keeps these with the times.

    host_here()      the computer: a name, and an identity that stays when the name changes
    code_here()      version, commit, whether there are changes without a commit, hash of the sources
    command_here()   the command as typed, without passwords

Nothing here raises an error: a fact that the system does not give is "".
"""

from __future__ import annotations

import getpass
import hashlib
import json
import platform
import shlex
import sys
import uuid
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from autotensor.base.source_hash import source_digest
from tuning_db.address import shown

PACKAGES = ("autotensor", "schedules", "tuning_db")
ROOT = Path(__file__).parents[3]
MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@dataclass(frozen=True, slots=True)
class HostHere:
    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class CodeHere:
    version: str
    commit: str  # "" if the code does not come from a known checkout
    dirty: bool  # the sources are not those of the commit, as far as is known
    sources: str  # hash of the sources

    @property
    def key(self) -> str:
        text = json.dumps([self.version, self.commit, self.dirty, self.sources])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@lru_cache(maxsize=1)
def host_here() -> HostHere:
    """This computer. Its identity is a hash of the system's own machine id, which is private. Without a
    machine id, it is a hash of the network card's address."""
    name = platform.node()
    for file in MACHINE_IDS:
        try:
            known = file.read_text().strip()
        except OSError:
            continue
        if known:
            return HostHere(_hashed(known), name)
    return HostHere(_hashed(f"{uuid.getnode()} {name}"), name)


def _hashed(text: str) -> str:
    return hashlib.sha256(f"autotensor {text}".encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def code_here() -> CodeHere:
    """The code of this process. It is read once, because hashing the sources takes 30 ms."""
    sources = source_digest(tuple(ROOT / name for name in PACKAGES))[:32]
    commit = commit_of(ROOT)
    return CodeHere(version_here(), commit or _installed_commit(), bool(commit) and is_dirty(ROOT), sources)


@lru_cache(maxsize=1)
def version_here() -> str:
    """The version of the installed package; "0" if it is not installed."""
    try:
        return metadata.version("autotensor")
    except metadata.PackageNotFoundError:
        return "0"


def commit_of(folder: Path) -> str:
    """The commit of a git checkout, read from its files; "" for other folders."""
    try:
        git = folder / ".git"
        if git.is_file():  # a worktree, whose file says `gitdir: FOLDER`
            git = (folder / git.read_text().partition(":")[2].strip()).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        common = git / "commondir"
        shared = (git / common.read_text().strip()).resolve() if common.exists() else git
        reference = head.removeprefix("ref: ")
        for place in (git, shared):
            if (place / reference).is_file():
                return (place / reference).read_text().strip()
        packed = (shared / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {reference}")), "")
    except (OSError, UnicodeDecodeError):
        return ""


def is_dirty(folder: Path) -> bool:
    """Whether a checkout's packages differ from its commit; False if git cannot be run."""
    import subprocess

    # without locks, because looking must not write to a user's checkout
    words = ["git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain", "--", *PACKAGES]
    try:
        asked = subprocess.run(words, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return asked.returncode == 0 and bool(asked.stdout.strip())


def _installed_commit() -> str:
    """The commit of an installation from a version control URL (PEP 610)."""
    try:
        text = metadata.distribution("autotensor").read_text("direct_url.json") or "{}"
        return str(json.loads(text).get("vcs_info", {}).get("commit_id", ""))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return ""


def command_here(arguments: list[str] | None = None) -> str:
    """The command line as typed in a shell, without passwords in database addresses.

    >>> command_here(["/usr/bin/autotensor", "tune", "mlp", "--db", "postgresql://ada:secret@h/log"])
    "autotensor tune mlp --db 'postgresql://ada:***@h/log'"
    """
    words = list(sys.argv if arguments is None else arguments) or [""]
    return shlex.join([Path(words[0]).name, *map(shown, words[1:])])


def user_here() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in some containers
        return ""


__all__ = [
    "CodeHere",
    "HostHere",
    "code_here",
    "command_here",
    "commit_of",
    "host_here",
    "is_dirty",
    "user_here",
]
