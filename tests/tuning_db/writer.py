"""A tuner as a process: `python writer.py LOG NAME COUNT` stores trials and prints each once it is stored.

Also loaded by conftest.py, so that tests and processes make the same trials.
"""

from __future__ import annotations

import sys
from typing import Any

from tuning_db import Intent, Machine, Round, Sample, Status, TrialRecord, TrialStore, Verification, connect


class Author:
    """Makes trials of one session of a store."""

    def __init__(self, store: TrialStore, fingerprint: str = "zen4", run_key: str = "run") -> None:
        self.store = store
        machine = store.ensure_machine(Machine(fingerprint, "Zen 4"))
        environment = store.ensure_environment({"llvmlite": "0.50"})
        store.ensure_workload("w", "matmul", '{"canonical": 1}', 2.0e9)
        store.ensure_target("t", '{"threads": 2}')
        session = store.start_session(run_key=run_key, seed=1, machine=machine, environment=environment)
        self.refers_to: dict[str, Any] = {
            "session": session.id,
            "workload": "w",
            "target": "t",
            "machine": machine,
            "environment": environment,
        }
        self.session = session.id

    def trial(self, trace_hash: str, seconds: float | None = 1e-3, **changes: Any) -> TrialRecord:
        result: dict[str, Any] = (
            {
                "status": Status.OK,
                "median_s": seconds,
                "samples": tuple(Sample(seconds * f) for f in (0.9, 1.0, 1.1)),
                "verification": Verification(1e-6, 1e-4, (1, 2), True),
            }
            if seconds is not None
            else {"status": Status.BUILD_ERROR, "error": "kernel 'k' needs 66560 bytes"}
        )
        trace = f'{{"version": 1, "steps": [["{trace_hash}", {"4, " * 40}8]]}}'
        return TrialRecord(**self.refers_to | {"trace": trace, "trace_hash": trace_hash} | result | changes)

    def intent(self, trace_hash: str) -> Intent:
        return Intent(self.session, "w", "t", trace_hash, "{}", worker_pid=1, boot_id="b")

    def begin(self, *intents: Intent, index: int = 0, notes: dict[str, Any] | None = None) -> None:
        self.store.begin_rounds([Round(self.session, "w", "t", index, notes or {})], intents)


def main(path: str, name: str, count: int) -> None:
    with connect(path) as store:
        author = Author(store, run_key=name)
        print("ready", flush=True)
        for i in range(count):
            trace_hash = f"{name}-{i}"
            author.begin(author.intent(trace_hash))
            store.add_trials([author.trial(trace_hash, 1e-3 + i * 1e-6)])
            print(trace_hash, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
