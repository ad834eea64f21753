"""A forked process has threads of its own, whatever its parent did before."""

from __future__ import annotations

import pytest
from scripts import run

# The work of a forked child: calls in every way, with checks of the answers. Its exit status is the size of
# the team.
CHILD = """
import os, shutil, signal, sys, time; sys.path[:0] = ["tests/runtime", "tests/runtime/native"]
from test_threads import *
from runtime_kernels import add_artifact
from autotensor.runtime.module import Module

out, lines = np.zeros(2, np.int32), np.zeros((2, 16), np.int32)
team_sum = Kernel(TEAM_SUM, "team_sum", out, lines)
add = Module(add_artifact(), threads=2)
a = np.arange(1000, dtype=np.float32)

def team(provider=None):
    signal.alarm(120)  # a hang ends the child by a signal
    until = time.monotonic() + 20
    while True:  # a worker that has just been started may come late
        threads.launch(team_sum.fn, team_sum.args, 2, provider=provider)
        assert out[0] == out[1] * (out[1] + 1) // 2
        c = add(a, a)
        assert (c == a + a).all()
        if out[1] == 2 or time.monotonic() > until:
            break
        time.sleep(0.01)
    return int(out[1])

def child(work):
    sys.stdout.flush()  # else the child prints it again
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def test_a_forked_child_has_a_pool_of_its_own() -> None:
    """Also in the calls of a module that was loaded, and took the short way, before the fork."""
    out = run(
        CHILD
        + """
before = threads.current()
team(), team()

def work():
    first = add._runs_directly((a, a, np.empty_like(a)))
    teams = team(), team(before)
    short = add._runs_directly((a, a, np.empty_like(a)))
    return 10 * (not first and short) + min(teams)

print(child(work), child(work), team(), threads.is_forked())
print(child(lambda: threads.current().name == "pool"))
"""
    )
    assert (out.stdout, out.stderr) == ("12 12 2 False\n1\n", "")


def test_a_child_of_a_child_has_one_too() -> None:
    out = run(
        CHILD
        + "team(); print(child(lambda: child(lambda: child(team))), child(lambda: team() + child(team)))"
    )
    assert (out.stdout, out.stderr) == ("2 4\n", "")


def test_a_child_of_a_process_that_never_called_has_one() -> None:
    assert run(CHILD + "print(child(team))").stdout == "2\n"


@pytest.mark.parametrize("children", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_forks_in_the_middle_of_calls(children: int) -> None:
    """Other threads of the parent are in regions, load modules and compile; the parent goes on as well."""
    out = run(
        CHILD
        + f"""
going = [True]

def call():
    while going[0]:
        assert (add(a, a) == a + a).all()

def load():
    while going[0]:
        compiled(BARRIER_STRESS.replace("TURNS", "5"))
        assert (Module(add_artifact(), threads=2)(a, a) == a + a).all()

others = [threading.Thread(target=f) for f in (call, call, load)]
for t in others:
    t.start()

def work():
    assert (Module(add_artifact(), threads=2)(a, a) == a + a).all()
    return team()

teams = [child(work) for _ in range({children})]
going[0] = False
for t in others:
    t.join(240)
print(set(teams) <= {{1, 2}}, teams.count(2) > 0.8 * len(teams), team())
""",
        timeout=240 if children < 100 else 1200,
    )
    assert (out.stdout, out.stderr) == ("True True 2\n", "")


def test_in_a_forked_child_the_parents_openmp_is_not_used(libgomp: str) -> None:
    """libgomp would wait for the parent's threads for ever. A copy that the child loads itself works."""
    out = run(
        CHILD
        + f"""
ctypes.CDLL({libgomp!r})
add = Module(add_artifact(), threads=2)
print(threads.current().name, team())
held = threads.choose("openmp-loaded")

def work():
    print(threads.current().name, threads.choose("openmp-loaded").name, team(), team(held), flush=True)
    ctypes.CDLL(threads.xgboost_openmp()[0])
    own = shutil.copy({libgomp!r}, {libgomp!r} + ".own")
    ctypes.CDLL(own)
    Module(add_artifact())
    print(threads.current().detail == own, team(), team(held), flush=True)
    return 0

print(child(work))
""",
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "openmp-loaded 2\npool pool 2 2\nTrue 2 2\n0\n"


def test_a_provider_asked_for_by_name_does_not_stop_a_forked_child() -> None:
    for name in ("openmp-system", "openmp-xgboost", "pool"):
        out = run(CHILD + "print(team(), child(lambda: team(threads.choose())))", AUTOTENSOR_PROVIDER=name)
        assert out.stdout == "2 2\n", name
    assert run(CHILD + "print(child(lambda: team(threads.choose('serial'))))").stdout == "1\n"


def test_forked_pools_of_processes() -> None:
    out = run(
        CHILD
        + """
import multiprocessing
team()
with multiprocessing.get_context("fork").Pool(3) as pool:
    print(all((r == a + k).all() for k, r in enumerate(pool.map(lambda_free, range(30)))))
""".replace("team()\n", "def lambda_free(k):\n    return add(a, np.full_like(a, k))\nteam()\n")
    )
    assert (out.stdout, out.stderr) == ("True\n", "")


@pytest.mark.torch
def test_after_torch_has_used_its_threads_a_forked_child_has_its_own() -> None:
    out = run(
        CHILD
        + """
import torch
x = torch.randn(512, 512)
x @ x
add = Module(add_artifact(), threads=2)
print(threads.current().name, team(), child(team), child(lambda: child(team)))
""",
        AUTOTENSOR_PROVIDER="",
    )
    assert out.stdout == "openmp-loaded 2 2 2\n"
