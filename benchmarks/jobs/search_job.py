"""A task of the search as a contestant's job: autotensor with the schedules that a search found, and peers.

SearchJob.named("layer2@8")      the winner of the first 8 trials (winners.py keeps them)
SearchJob.named("layer2@seed0")  for TVM: MetaSchedule's result with that seed
SearchJob.named("layer2")        for the libraries
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from peers import Ready, Skip, Spec
from replays import winners
from replays.search_tasks import TASKS, workload

from jobs import metaschedule
from jobs.operator_job import OperatorJob, target_of


class SearchJob(OperatorJob):
    """`variant` is the part of the name after the @."""

    def __init__(self, name: str, variant: str) -> None:
        super().__init__(name, TASKS[name]())
        self.name, self.variant = name, variant

    @staticmethod
    def named(text: str) -> SearchJob:
        name, _, variant = text.partition("@")
        return SearchJob(name, variant)

    def ours(self, spec: Spec) -> Ready:
        """Compiles the task with the winner after so many trials. Raises Skip if an earlier number of trials
        has the same winner."""
        from autotensor.compiler import compile_trace
        from autotensor.runtime.arrays import aligned_copy, aligned_empty
        from autotensor.runtime.module import Module
        from autotensor.schedule.trace import Trace

        known = winners.read(Path(spec.file), self.name).winners
        earlier = winners.same_before(known, int(self.variant))
        if earlier is not None:  # 0 is the first guess
            raise Skip(f"as {earlier}")
        dag = workload(self.name).dag
        target = target_of(spec)
        artifact = compile_trace(dag, Trace.from_json(known[int(self.variant)]), target)
        given, bound = _by_canonical_name(self.case, dag)
        module = Module(artifact, threads=target.num_cores)
        if bound:
            module = module.bind(**bound)
        placed = [aligned_copy(a) for a in given]
        (result,) = dag.outputs
        out = aligned_empty(result.shape, "float32")

        def run() -> None:
            module(*placed, out)

        def output() -> Any:
            out[...] = np.nan
            run()
            return self.case.from_ours(np.array(out))

        return run, output

    def tvm(self, threads: int) -> tuple[Path, list[Any], Any]:
        """MetaSchedule's library, the arrays in the layouts that the library expects, and a function that
        reads the result."""
        found = metaschedule.kept(self.name, self.variant, threads)
        if found is None:
            raise Skip("MetaSchedule did not search this one")
        library, facts = found
        given, bound = _by_canonical_name(self.case, workload(self.name).dag)
        arrays = iter(given)
        ordered = [
            bound[n] if n in bound else next(arrays)
            for n in workload(self.name).dag.args
            if n in facts["inputs"]
        ]
        turned = [
            np.ascontiguousarray(a.transpose(facts["order"].get(n, range(a.ndim))))
            for n, a in zip(facts["inputs"], ordered, strict=True)
        ]
        return library, turned, _Result(self.case.from_ours, tuple(facts["shape"]))


class _Result:
    """Reads TVM's result: the shape of its array, and the way to torch's layout."""

    def __init__(self, read: Any, shape: tuple[int, ...]) -> None:
        self.read, self.shape = read, shape

    def __call__(self, array: Any) -> Any:
        return self.read(array)


def _by_canonical_name(case: Any, dag: Any) -> tuple[list[Any], dict[str, Any]]:
    """The inputs in calling order, and the constants under the names that the workload gives them."""
    inputs, constants = case.arrays
    given = [case.to_ours(a) for a in inputs]
    weights = iter(case.constant_to_ours(a) for a in constants.values())
    names = [b.name for b in dag.inputs]
    in_order = [n for n in dag.args if n in names]
    return given, {n: next(weights) for n in in_order if n in dag.constants}
