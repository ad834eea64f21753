"""A device after a fork: the driver's threads exist only in the parent, so a child raises an error instead of
waiting."""

from __future__ import annotations

import pytest
from scripts import run

pytestmark = pytest.mark.opencl


def test_a_forked_child_says_that_it_cannot_use_the_parents_device() -> None:
    out = run(
        """
        import os, pickle, signal
        import numpy as np
        import autotensor as at
        from autotensor import te
        x = te.placeholder((8,), name="x")
        f = at.build([x, te.compute((8,), lambda i: x[i] * 2.0, name="y")], target="opencl")
        f(np.ones(8, np.float32))
        data = pickle.dumps(f)
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            for work in (lambda: f(np.ones(8, np.float32)), lambda: pickle.loads(data)):
                try:
                    work()
                except at.AutotensorError as error:
                    print(error, flush=True)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), f(np.ones(8, np.float32)).sum())
        """
    )
    said = (
        "target 'opencl' cannot be used in this forked process: its parent has opened it. "
        "Use it after the fork only, or start processes by spawn.\n"
    )
    assert out.stdout == said * 2 + "0 16.0\n"
