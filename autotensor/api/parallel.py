"""Independent kernels of a graph on several workers at once.

    A = ones * 2 ─┬─▶ B = A + 1 ─┐
                  └─▶ C = A + 2 ─┴─▶ D = B * C        B and C side by side, D after both

A kernel is ready when all its inputs are computed. Ready kernels wait in one queue, and idle workers take
them from it. Each kernel runs on one thread. This is the schedule of MXNet's engine and TensorFlow's
executor. The linked model (`compile_model`) instead gives all threads to one kernel after the other. This is
better as soon as kernels are large, and all other parts of autotensor do it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotensor.api.models import as_graph
from autotensor.base.errors import ArgumentError
from autotensor.base.target import Target, parse
from autotensor.compiler import compile_workload
from autotensor.graph.groups import Group
from autotensor.graph.ir import Array, Constant, Graph, GraphNode
from autotensor.graph.partition import own_outputs, partition
from autotensor.graph.storage import storage
from autotensor.insight.timeline import Span, Timeline
from autotensor.operators import Kind
from autotensor.resolve import safe_default
from autotensor.runtime.files.object_cache import default_cache
from autotensor.runtime.module import Module


@dataclass(frozen=True, slots=True)
class Task:
    """A kernel, and the indices of the kernels that must run before it."""

    group: Group
    module: Module
    after: tuple[int, ...]
    wave: int  # 1 more than the greatest wave of its predecessors; kernels of a wave are independent


@dataclass(frozen=True, slots=True)
class ParallelProgram:
    """A graph's kernels, each with the kernels that it waits for. Any number of calls may run at once."""

    graph: Graph
    tasks: tuple[Task, ...]
    workers: int

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        """The outputs."""
        return self.run(*arrays)[0]

    def run(self, *arrays: Array) -> tuple[tuple[Array, ...], Timeline]:
        """The outputs, and a timeline: which worker ran which kernel, and when. Raises the error of a
        kernel."""
        if len(arrays) != len(self.graph.inputs):
            raise ArgumentError(
                f"{self.graph.name} takes {len(self.graph.inputs)} arrays, got {len(arrays)}."
            )
        values: dict[GraphNode, Array] = dict(zip(self.graph.inputs, arrays, strict=True))
        spans = _Execution(self.tasks, values).done_by(self.workers)
        outputs = tuple(_value(o, values) for o in self.graph.outputs)
        return outputs, Timeline(tuple(sorted(spans, key=lambda s: s.start_s)))

    def __str__(self) -> str:
        """The schedule: waves of independent kernels.

        wave 0: multiply
        wave 1: add | add
        """
        waves: dict[int, list[str]] = {}
        for t in self.tasks:
            waves.setdefault(t.wave, []).append(t.group.name)
        return "\n".join(f"wave {n}: {' | '.join(names)}" for n, names in sorted(waves.items()))


def compile_parallel(
    model: Graph | GraphNode | Sequence[GraphNode],
    workers: int = 2,
    target: str | Target | None = None,
    *,
    names: Mapping[GraphNode, str] | None = None,
    fuse: bool = False,
) -> ParallelProgram:
    """A graph as kernels, each of which runs as soon as its inputs are computed. The graph is not rewritten.

    names: names for the timeline, by a kernel's last node. fuse: elementwise operators join the kernel before
    them, so that fewer kernels can run side by side.
    """
    graph = own_outputs(as_graph(model))
    one = parse(target).with_threads(1)
    maker: dict[GraphNode, int] = {}
    tasks: list[Task] = []
    for n, group in enumerate(partition(graph if fuse else _all_seen(graph), rounded=True)):
        called = (names or {}).get(group.outputs[-1], f"{n}: {group.name}")
        trace = safe_default(group.workload, one)
        artifact = compile_workload(group.workload, trace, one, group.name, default_cache())
        after = tuple(sorted({maker[x] for x in group.inputs if x in maker}))
        wave = 1 + max((tasks[k].wave for k in after), default=-1)
        tasks.append(Task(replace(group, name=called), Module(artifact, threads=1), after, wave))
        maker.update(dict.fromkeys(group.outputs, n))
    return ParallelProgram(graph, tuple(tasks), workers)


def _all_seen(graph: Graph) -> Graph:
    """The graph with every operator's result as an output, so that each is a kernel of its own."""
    inner = [n for n in graph.applies if n not in graph.outputs and n.kind is not Kind.VIEW]
    names = (*graph.output_names, *(f"inner_{n}" for n in range(len(inner))))
    return replace(graph, outputs=(*graph.outputs, *inner), output_names=names)


def _value(node: GraphNode, values: Mapping[GraphNode, Array]) -> Array:
    """A node's array; a view is another shape of the same bytes."""
    root = storage(node)
    array = root.array if isinstance(root, Constant) else values[root]
    return array.reshape(node.shape)


class _Execution:
    """One run: how many kernels each task still waits for, and a queue of the tasks that are ready."""

    def __init__(self, tasks: Sequence[Task], values: dict[GraphNode, Array]) -> None:
        self.tasks = tasks
        self.values = values
        self.waiting = [len(t.after) for t in tasks]
        self.readers: list[list[int]] = [[] for _ in tasks]
        for n, t in enumerate(tasks):
            for k in t.after:
                self.readers[k].append(n)
        self.ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.left = len(tasks)
        self.spans: list[Span] = []
        self.errors: list[BaseException] = []
        self.lock = threading.Lock()
        self.began = time.perf_counter()

    def done_by(self, workers: int) -> list[Span]:
        for n, count in enumerate(self.waiting):
            if count == 0:
                self.ready.put(n)
        threads = [threading.Thread(target=self._work, args=(w, workers)) for w in range(workers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if self.errors:
            raise self.errors[0]
        return self.spans

    def _work(self, worker: int, workers: int) -> None:
        """Takes tasks from the queue until it gets None, which means the end."""
        while (n := self.ready.get()) is not None:
            try:
                self._run(n, worker)
            except BaseException as error:  # whatever it is, the caller of `run` gets it
                self.errors.append(error)
                self._end(workers)
                return
            with self.lock:
                self.left -= 1
                last = self.left == 0
                for reader in self.readers[n]:
                    self.waiting[reader] -= 1
                    if self.waiting[reader] == 0:
                        self.ready.put(reader)
            if last:
                self._end(workers)

    def _end(self, workers: int) -> None:
        for _ in range(workers):
            self.ready.put(None)

    def _run(self, n: int, worker: int) -> None:
        task = self.tasks[n]
        group = task.group
        inputs = [
            _value(x, self.values).reshape(spec.shape)
            for x, spec in zip(group.inputs, task.module.args, strict=False)
        ]
        start = time.perf_counter()
        made = task.module(*inputs)
        end = time.perf_counter()
        for out, array in zip(group.outputs, made if isinstance(made, tuple) else (made,), strict=True):
            self.values[out] = array.reshape(out.shape)
        self.spans.append(Span(group.name, worker, start - self.began, end - self.began))
