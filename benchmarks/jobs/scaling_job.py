"""A network that is compiled in the contestant's process, without anything kept from earlier runs. So the
time and memory of setting it up are those that a user sees. Peers are set up as in the other tables.

    <cache>/networks/resnet18@b8/   model.onnx  weights.npz  inputs.npz  facts.json
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from peers import Ready, Spec

from jobs.networks import Array, Network


class Scaled(Network):
    """autotensor's `setup_s` covers everything: weights from the file, graph, schedules, code, packing."""

    def ours(self, spec: Spec) -> Ready:
        from autotensor.api.log import open_existing
        from autotensor.api.models import default_traces, link_model, plan_model, traces_from_log
        from autotensor.runtime.arrays import aligned_empty
        from autotensor.runtime.module import Module
        from jobs.operator_job import target_of

        with np.load(self.folder / "weights.npz") as found:
            graph = self.graph({n: found[n] for n in found.files})
        plan = plan_model(graph, target_of(spec))
        if spec.log:
            with open_existing(spec.log) as store:
                traces = traces_from_log(plan, store)
        else:
            traces = default_traces(plan)
        f = Module(link_model(plan, traces), threads=spec.threads)
        given = list(self._inputs.values())
        out = tuple(aligned_empty(a.shape, a.dtype) for a in f.args if a.role == "output")

        def run() -> None:
            f(*given, *out)

        def output() -> Array:
            out[0][...] = np.nan
            run()
            return np.array(out[0])

        return run, output

    def _compile(self, graph: Any, specs: list[Spec]) -> Mapping[str, float]:
        """Compiles nothing beforehand."""
        from autotensor.api.models import plan_model
        from jobs.operator_job import target_of

        groups = plan_model(graph, target_of(Spec("ours", 1))).groups
        return {"flops": float(sum(g.flops for g in groups))}
