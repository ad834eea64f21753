"""Tests `at.from_torch` with OpInfo, torch's own database of samples of its operators.

    OpInfo ──sample──▶ module of its tensors ──from_torch──▶ graph ──compile_model──▶ values, held to eager's

Every sample becomes a row with its outcome and a message. Samples are judged in child processes, some forty
operators in each. So an operator that ends its process becomes a row, too.

    python tests/frontends/opinfo.py --samples 3 --out rows.jsonl [--only add,mul] [--core]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

EQUAL, WRONG, REFUSED, RAW, CRASHED, ALIEN = "equal", "wrong", "refused", "raw", "crashed", "not exported"
DTYPES = ("float32", "int64")
PER_CHILD = 40
# The contents of unwritten memory: only shape and type can be compared.
UNWRITTEN = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


@dataclass(frozen=True, slots=True)
class Row:
    """One sample. words: the message of an error, or the difference of the values. seconds: the time of
    export, conversion and run."""

    op: str  # name, and after a dot the variant
    dtype: str
    sample: int  # the sample's number, among those of the operator
    outcome: str
    words: str = ""
    seconds: float = 0.0


# -- one sample --------------------------------------------------------------------------------------------


def judge(function: Any, sample: Any, *, name: str = "op") -> tuple[str, str]:
    """The outcome of one sample, and the message that goes with it."""
    import torch
    from torch.utils._pytree import tree_flatten

    import autotensor as at
    from autotensor.base.errors import AutotensorError
    from autotensor.frontends.torch.element_types import to_array

    leaves, spec = tree_flatten((sample.input, list(sample.args), dict(sample.kwargs)))
    places = [n for n, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    tensors = tuple(leaves[n].detach() for n in places)
    module = _module(function, leaves, spec, places)
    with torch.no_grad():
        try:
            eager = module(*(x.clone() for x in tensors))
        except Exception as error:  # the sample is not for this operator
            return ALIEN, f"eager: {_first_line(error)}"
        double = _in_double(module, tensors)
        try:
            program = torch.export.export(module, tuple(x.clone() for x in tensors), strict=False)
        except Exception as error:  # torch raises many kinds
            return ALIEN, _first_line(error)
    try:
        graph = at.from_torch(program, name=name.replace(".", "_"))
        model = at.compile_model(graph, db=":memory:", progress=False)
        given = [
            to_array(x) for x, n in zip(tensors, _inputs(program), strict=True) if n in graph.input_names
        ]
        got = model(*given)
    except AutotensorError as error:
        words = str(error)
        return REFUSED, words
    except Exception as error:
        return RAW, f"{type(error).__name__}: {_first_line(error)} [{_innermost(error)}]"
    results = list(got) if isinstance(got, tuple) else [got]
    wanted = [x for x in tree_flatten(eager)[0] if x is not None]
    better = (
        [x for x in tree_flatten(double)[0] if x is not None] if double is not None else [None] * len(wanted)
    )
    if len(results) != len(wanted):
        return WRONG, f"{len(results)} results, torch has {len(wanted)}"
    for n, (ours, theirs, exact) in enumerate(zip(results, wanted, better, strict=True)):
        if words := differs(ours, theirs, exact, unwritten=name.split(".")[0] in UNWRITTEN):
            if name.split(".")[0] in PLACES and theirs.dtype is torch.int64 and _tied(sample, ours, theirs):
                continue
            return WRONG, f"result {n}: {words}"
    return EQUAL, ""


def _tied(sample: Any, ours: Any, theirs: Any) -> bool:
    """Whether our places differ from torch's only among equal elements."""
    from autotensor.frontends.torch.element_types import to_tensor

    x = sample.input
    whole = [d for d in range(x.dim()) if theirs.dim() == x.dim() or _without(x.shape, d) == theirs.shape]
    return any(same_elements(x, to_tensor(ours), theirs, d) for d in whole or [0])


def _without(shape: Any, axis: int) -> Any:
    return shape[:axis] + shape[axis + 1 :]


# Operators whose places of equal elements are arbitrary: any places that name the same values, each once, are
# right.
PLACES = frozenset({"topk", "kthvalue", "median", "nanmedian", "mode", "sort", "argsort", "msort"})


def same_elements(x: Any, ours: Any, theirs: Any, dim: int) -> bool:
    """Whether both tensors of places name equal elements of x along the axis, and ours names no place
    twice."""
    import torch

    if not x.dim():
        return torch.equal(ours, theirs)
    wide = (ours, theirs) if ours.dim() == x.dim() else (ours.unsqueeze(dim), theirs.unsqueeze(dim))
    inside = bool(((wide[0] >= 0) & (wide[0] < x.shape[dim])).all())
    if not inside or bool((wide[0].sort(dim).values.diff(dim=dim) == 0).any()):
        return False
    return torch.equal(*(x.gather(dim, w).nan_to_num(nan=float("inf")) for w in wide))


def _module(function: Any, leaves: Sequence[Any], spec: Any, places: Sequence[int]) -> Any:
    """A module whose inputs are the sample's tensors; its other arguments are part of it."""
    import torch
    from torch.utils._pytree import tree_unflatten

    class Fixed(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> Any:
            full = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                full[place] = tensor
            first, args, kwargs = tree_unflatten(full, spec)
            return function(first, *args, **kwargs)

    return Fixed().eval()


def _inputs(program: Any) -> list[str]:
    """Names of the program's tensors."""
    from torch.export.graph_signature import InputKind

    return [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]


def _in_double(module: Any, tensors: Sequence[Any]) -> Any:
    """The same computation in float64, where torch can do it."""
    import torch

    if not any(x.dtype is torch.float32 for x in tensors):
        return None
    try:
        return module(*(x.double() if x.dtype is torch.float32 else x.clone() for x in tensors))
    except Exception:  # a type among the fixed arguments, an operator without float64
        return None


def differs(ours: Any, theirs: Any, exact: Any, *, unwritten: bool = False) -> str:
    """The difference between our result and torch's; "" if there is none.

    Floats may differ by the amount that torch.testing allows for float32 results, or may be up to three times
    as far from the float64 result as torch's own. All other values must be equal.
    """
    import numpy as np
    import torch

    from autotensor.frontends.torch.element_types import to_tensor

    if not isinstance(theirs, torch.Tensor):
        theirs = torch.as_tensor(theirs)
    mine = to_tensor(np.asarray(ours))
    if (mine.dtype, tuple(mine.shape)) != (theirs.dtype, tuple(theirs.shape)):
        return f"{mine.dtype} {tuple(mine.shape)}, torch has {theirs.dtype} {tuple(theirs.shape)}"
    if unwritten or not theirs.numel():
        return ""
    if not theirs.dtype.is_floating_point:
        bad = (mine != theirs).sum().item()
        return f"{bad} of {theirs.numel()} differ: {_shown(mine, theirs)}" if bad else ""
    if not torch.equal(mine.isnan(), theirs.isnan()):
        return f"NaN in other places: {_shown(mine, theirs)}"
    close = torch.isclose(mine, theirs, rtol=1.3e-6, atol=1e-5, equal_nan=True)
    if exact is not None and not bool(close.all()) and exact.shape == theirs.shape:
        own = (theirs.double() - exact.double()).abs()
        limit = 3 * torch.where(own.isfinite(), own, 0.0).max()
        close |= (mine.double() - exact.double()).abs() <= limit
    bad = (~close).sum().item()
    return f"{bad} of {theirs.numel()} differ: {_shown(mine, theirs, ~close)}" if bad else ""


def _shown(mine: Any, theirs: Any, at: Any = None) -> str:
    import torch

    at = (mine != theirs) & ~(mine.isnan() & theirs.isnan()) if at is None else at
    first = torch.nonzero(at.reshape(-1))[0].item()
    return f"{mine.reshape(-1)[first].item()!r}, torch has {theirs.reshape(-1)[first].item()!r}"


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


def _innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""


# -- operators ---------------------------------------------------------------------------------------------


def infos() -> dict[str, Any]:
    """OpInfos by name and variant."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {_name(o): o for o in op_db}


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else str(info.name)


def core_names() -> list[str]:
    """Operators of the database that are in torch's core ATen set."""
    import torch

    core: set[str] = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", lambda: ())():
            if torch.Tag.core in getattr(packet, overload).tags:
                core.add(name)
    return [n for n, info in infos().items() if {_aten(info)} & core]


def _aten(info: Any) -> str:
    """The ATen operator that an OpInfo is of."""
    return str(info.aten_name)


def samples_of(info: Any, dtype: str, count: int, seed: int) -> list[tuple[int, Any]]:
    """Some of the operator's forward samples, with their numbers; all if count is 0."""
    import torch

    torch.manual_seed(seed)
    found = list(enumerate(info.sample_inputs("cpu", getattr(torch, dtype), requires_grad=False)))
    if count and len(found) > count:
        drawn = random.Random(f"{seed} {_name(info)} {dtype}").sample(found[1:], count - 1)
        return sorted([found[0], *drawn], key=lambda s: s[0])
    return found


def judge_all(names: Iterable[str], dtypes: Sequence[str], count: int, seed: int) -> Iterator[Row]:
    """The rows of these operators, made in this process; a row "crashed" goes ahead of each."""
    import torch

    table = infos()
    for name in names:
        info = table[name]
        for dtype in dtypes:
            if getattr(torch, dtype) not in info.supported_dtypes("cpu"):
                continue
            yield Row(name, dtype, -1, CRASHED, "while its samples were made")
            for number, sample in samples_of(info, dtype, count, seed):
                yield Row(name, dtype, number, CRASHED)
                start = time.perf_counter()
                outcome, words = judge(info.op, sample, name=name)
                yield Row(name, dtype, number, outcome, words, round(time.perf_counter() - start, 3))


# -- children ----------------------------------------------------------------------------------------------


def run(
    names: Sequence[str],
    dtypes: Sequence[str],
    count: int,
    seed: int = 0,
    jobs: int = 1,
    told: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """The rows of all the operators, judged in children; `told` is called with each row at once."""

    def judged(batch: list[str]) -> list[Row]:
        rows: list[Row] = []
        while batch:
            found, last = _read(_child(batch, dtypes, count, seed), told)
            rows += found
            batch = [] if last is None else batch[batch.index(last.op) + 1 :]  # it ended there
        return rows

    batches = [list(names[n : n + PER_CHILD]) for n in range(0, len(names), PER_CHILD)]
    with ThreadPoolExecutor(jobs) as pool:
        return [row for rows in pool.map(judged, batches) for row in rows]


def _child(names: Sequence[str], dtypes: Sequence[str], count: int, seed: int) -> subprocess.Popen[str]:
    words = [sys.executable, __file__, "--child", "--only", ",".join(names), "--dtypes", ",".join(dtypes)]
    words += ["--samples", str(count), "--seed", str(seed)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=quiet)


def _read(child: subprocess.Popen[str], told: Callable[[Row], None]) -> tuple[list[Row], Row | None]:
    """A child's rows, and the one at which it ended before its time."""
    rows: list[Row] = []
    open_: Row | None = None
    assert child.stdout is not None
    for line in child.stdout:
        if not line.startswith('{"op"'):  # something that torch prints
            continue
        row = Row(**json.loads(line))
        open_ = row if row.outcome == CRASHED else None
        if open_ is None:
            rows.append(row)
            told(row)
    code = child.wait()
    if code == 0:
        return rows, None
    if open_ is None:
        raise RuntimeError(f"a child ended with {code} between samples")
    last = replace(open_, words=f"exit status {code}")
    told(last)
    return [*rows, last], last


# -- the table ---------------------------------------------------------------------------------------------


def summary(rows: Sequence[Row]) -> str:
    """Shares of the samples that torch exports, and of the operators all of whose samples are equal."""
    counts = Counter(r.outcome for r in rows)
    judged = [r for r in rows if r.outcome != ALIEN]
    by_op: dict[tuple[str, str], list[Row]] = {}
    for r in judged:
        by_op.setdefault((r.op, r.dtype), []).append(r)
    whole = sum(all(r.outcome == EQUAL for r in of) for of in by_op.values())
    share = 100 * counts[EQUAL] / max(len(judged), 1)
    ops = 100 * whole / max(len(by_op), 1)
    told = ", ".join(f"{n} {k}" for k, n in counts.most_common())
    mean = math.fsum(r.seconds for r in rows) / max(len(rows), 1)
    return (
        f"{len(rows)} samples: {told}; equal {share:.1f} % of {len(judged)} exported samples, "
        f"{ops:.1f} % of {len(by_op)} operator-types; {mean:.2f} s a sample"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--core", action="store_true")
    parser.add_argument("--samples", type=int, default=1, help="of each operator and type; 0: all")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="")
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else core_names() if given.core else list(infos())
    types = given.dtypes.split(",")
    if given.child:
        for row in judge_all(names, types, given.samples, given.seed):
            print(json.dumps(asdict(row)), flush=True)
        return
    with open(given.out or os.devnull, "w") as file:
        rows = run(
            names,
            types,
            given.samples,
            given.seed,
            given.jobs,
            lambda row: print(json.dumps(asdict(row)), file=file, flush=True),
        )
    for r in rows:
        if r.outcome not in (EQUAL,):
            print(f"{r.outcome:12} {r.op:40} {r.dtype:8} #{r.sample:<3} {r.words[:220]}")
    print(summary(rows))


if __name__ == "__main__":
    main()
