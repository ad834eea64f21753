"""Workers that loop, crash, flood, leave or refuse to die; and workers whose parent dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotensor.base.errors import InputError, MeasureError
from autotensor.runtime.workers.children import Child, Status

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]


@pytest.fixture
def child() -> Iterator[Child]:
    with Child("evil_worker", path=[HERE]) as worker:
        yield worker


def test_answers_line_by_line_in_one_process(child: Child) -> None:
    replies = [child.request(f"echo {k}", 5) for k in range(3)]
    assert [(r.status, r.text) for r in replies] == [(Status.OK, str(k)) for k in range(3)]
    assert child.request("pid", 5).text == str(child.pid)
    assert child.starts == 1


def test_what_it_prints_is_kept_apart_from_answers(child: Child) -> None:
    reply = child.request("print ready", 5)
    assert (reply.text, reply.output) == ("printed", "ready\n")
    assert child.request("echo a", 5).output == ""


def test_long_lines_pass_both_ways(child: Child) -> None:
    text = "é" * 300_000
    assert child.request(f"echo {text}", 10).text == text


@pytest.mark.parametrize("request_text", ["loop", "sleep 100", "stubborn"])
def test_one_that_does_not_answer_is_killed_in_time(child: Child, request_text: str) -> None:
    child.start()
    pid = child.pid
    began = time.monotonic()
    reply = child.request(request_text, 0.3)
    assert (reply.status, reply.detail) == (Status.TIMEOUT, "no answer within 0.3 s.")
    assert time.monotonic() - began < 2
    assert pid is not None
    assert not alive(pid)
    assert child.request("echo again", 5).text == "again"
    assert child.starts == 2


@pytest.mark.parametrize(
    ("request_text", "status", "detail"),
    [
        ("segfault", Status.CRASHED, "it was killed by SIGSEGV."),
        ("exit 3", Status.EXITED, "it exited with status 3."),
        ("exit 0", Status.EXITED, "it exited with status 0."),
        ("raise", Status.EXITED, "it exited with status 1."),
        ("close", Status.EXITED, "it closed its pipe."),
        ("flood", Status.OUTPUT_LIMIT, "it printed more than 1048576 bytes."),
    ],
)
def test_one_that_breaks_is_told_apart_and_replaced(
    child: Child, request_text: str, status: Status, detail: str
) -> None:
    reply = child.request(request_text, 10)
    assert (reply.status, reply.detail) == (status, detail)
    assert child.pid is None
    if request_text == "raise":
        assert "ValueError: candidate is broken" in reply.output
    assert child.request("echo again", 5).text == "again"


def test_memory_is_limited() -> None:
    with Child("evil_worker", path=[HERE], memory_bytes=2 << 30) as child:
        assert child.request(f"allocate {8 << 30}", 5).text == "MemoryError"
        assert child.request(f"allocate {1 << 20}", 5).text == str(1 << 20)


def test_what_it_started_dies_with_it(child: Child) -> None:
    grandchild = int(child.request("grandchild", 5).text)
    assert alive(grandchild)
    child.kill()
    assert_gone(grandchild)


def test_one_that_cannot_start_says_why() -> None:
    with Child("evil_worker", ["broken"], path=[HERE]) as child, pytest.raises(MeasureError) as caught:
        child.request("echo", 5)
    assert caught.value.what == "worker evil_worker broken did not start: it exited with status 1."
    assert "no such toolkit" in str(caught.value)


def test_a_request_is_one_line(child: Child) -> None:
    with pytest.raises(InputError, match="one line"):
        child.request("a\nb", 1)


def test_worker_ends_when_its_parent_is_killed(child: Child) -> None:
    """Also while it computes, when it cannot notice that its input has ended."""
    script = (
        f"import sys; sys.path[:0] = [{str(HERE)!r}]\n"
        "from autotensor.runtime.workers.children import Child\n"
        f"child = Child('evil_worker', path=[{str(HERE)!r}])\n"
        "print(child.request('pid', 10).text, flush=True)\n"
        "child.request('loop', 100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert alive(worker)
        parent.kill()
    assert_gone(worker)


def test_forgotten_children_are_ended() -> None:
    child = Child("evil_worker", path=[HERE])
    pid = int(child.request("pid", 5).text)
    del child
    assert not alive(pid)


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_gone(pid: int) -> None:
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(pid)
    assert pid != os.getpid()
