"""Whole architectures, drawn at random: do all three routes into autotensor compute them completely and
correctly?

    python benchmarks/architectures.py --draw timm=75,torchvision=25,transformers=50 --json FILE

The frame of the draw is every architecture of timm, torchvision and transformers below 200 million parameters
that eager torch runs on inputs made without knowledge of it (`architecture_frames.py`). The seed is the first
eight hex digits of the commit. Each architecture takes three routes, in its own process, which is killed
after `--limit`:

    from_torch   at.from_torch, compiled without tuning
    compile      torch.compile(backend="autotensor"), without a graph break, nothing left to eager torch
    onnx         torch.onnx.export, at.from_onnx, compiled without tuning

Each result is compared with the module in float64. Its error may be three times that of eager float32 torch
(for an ONNX file, that of onnxruntime if it is larger, because onnxruntime computes the same operators), and
always `FLOOR` of the largest value. If torch itself cannot do its part of a route (export, trace), the route
is "not torch's", with torch's message. It does not count for or against autotensor.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import multiprocessing
import random
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nets.architecture_frames import LIBRARIES, Excluded, made, names
from torch.utils._pytree import tree_flatten

sys.path.insert(0, str(Path(__file__).parents[1]))

ROUTES = ("from_torch", "compile", "onnx")
TIMES = 3.0  # most times torch's own error that an error may be
# error that is always allowed, as a share of the largest value: some roundings of float32, in case torch is
# exact
FLOOR = 2e-6
Array = np.ndarray[Any, np.dtype[Any]]
# the results of autotensor, and those of another library that computes the same, if any
Answer = tuple[list[Any], list[torch.Tensor]]


class NotOurs(Exception):
    """torch cannot do its part of a route."""


# -- routes ------------------------------------------------------------------------------------------------


def _tensors(value: Any) -> list[torch.Tensor]:
    return [v for v in tree_flatten(_plain(value))[0] if isinstance(v, torch.Tensor)]


def _plain(value: Any) -> Any:
    """The parts of a result whose class torch does not know."""
    if hasattr(value, "to_tuple"):
        return value.to_tuple()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _arrays(values: Iterable[Any]) -> list[Array]:
    return [np.ascontiguousarray(v.detach().numpy()) for v in values]


def from_torch(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    import autotensor as at

    try:
        graph = at.from_torch(module, args, kwargs)
    except at.AutotensorError as error:
        if "torch.export cannot export" in str(error):
            raise NotOurs(str(error)) from error
        raise
    model = at.compile_model(graph, db=":memory:")
    given = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
    made = model(*_arrays(given))
    return (list(made) if isinstance(made, tuple) else [made]), []


def compiled(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    from torch._dynamo.utils import counters

    from autotensor.integrations import torch_compile

    said: list[str] = []
    torch_compile._tell = lambda why, options: said.append(why)
    torch._dynamo.reset()
    counters.clear()
    f = torch.compile(module, backend=torch_compile.autotensor, options={"log": ":memory:"})
    with torch.no_grad():
        got = _tensors(f(*args, **kwargs))
    if said:
        raise RuntimeError(f"eager: {said[0]}")
    if breaks := counters["graph_break"]:
        raise NotOurs(f"graph break: {next(iter(breaks))[:200]}")
    return got, []


def onnx(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    import logging

    import autotensor as at

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with torch.no_grad():
            program = torch.onnx.export(module, args, kwargs=kwargs, dynamo=True, verbose=False)
        proto = program.model_proto
    except Exception as error:
        raise NotOurs(f"torch.onnx.export: {type(error).__name__}: {str(error)[:200]}") from error
    f = at.OnnxModel(proto.SerializeToString(), db=":memory:")
    given = _arrays(v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor))
    return list(f(*given)), _by_onnxruntime(proto.SerializeToString(), given)


def _by_onnxruntime(model: bytes, given: list[Array]) -> list[torch.Tensor]:
    """onnxruntime's results; [] if it cannot run the model."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(model)
        named = {i.name: x for i, x in zip(session.get_inputs(), given, strict=True)}
        return [torch.as_tensor(y) for y in session.run(None, named)]
    except Exception:  # onnxruntime's exceptions have no common base class
        return []


def convert(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
    """Only checks that every operator converts. This is quick; no result is compared."""
    import autotensor as at

    try:
        at.from_torch(module, args, kwargs)
    except at.AutotensorError as error:
        if "torch.export cannot export" in str(error):
            raise NotOurs(str(error)) from error
        raise
    return [], []


WAYS: dict[str, Callable[..., Answer]] = {
    "from_torch": from_torch,
    "compile": compiled,
    "onnx": onnx,
    "convert": convert,
}


# -- one architecture --------------------------------------------------------------------------------------


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def references(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor] | None]:
    """The results of eager torch in float32, and in float64 if it can compute them."""
    from torch.utils._pytree import tree_map

    with torch.no_grad():
        single = _tensors(module(*args, **kwargs))
        try:
            exact = _tensors(
                copy.deepcopy(module).double()(*tree_map(_double, args), **tree_map(_double, kwargs))
            )
        except Exception:  # some programs make float32 tensors themselves
            exact = None
    if exact is not None and not all(map(_judges, exact, single)):
        exact = None
    return single, exact


def _judges(exact: torch.Tensor, single: torch.Tensor) -> bool:
    """Whether a result in float64 can judge the result in float32. A module may fill masks with the smallest
    float32 and then give NaN in float64."""
    if exact.shape != single.shape:
        return False
    return not single.is_floating_point() or torch.equal(exact.isfinite(), single.isfinite())


def exported(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The results of the program that torch exports, in eager torch. Some modules compute something else when
    traced."""
    with torch.no_grad():
        return _tensors(torch.export.export(module, args, kwargs).module()(*args, **kwargs))


def compare(
    got: list[Any],
    single: list[torch.Tensor],
    exact: list[torch.Tensor] | None,
    others: list[torch.Tensor] | None = None,
) -> tuple[float, str]:
    """The largest error and what is wrong ("": nothing). The unit of the error is torch's own error or the
    others', whichever is larger, and at least the floor."""
    if len(got) != len(single):
        return 0.0, f"{len(got)} results of {len(single)}"
    worst, wrong = 0.0, ""
    for n, (g, s) in enumerate(zip(got, single, strict=True)):
        ours = torch.as_tensor(g) if not isinstance(g, torch.Tensor) else g
        if ours.shape != s.shape or ours.dtype != s.dtype:
            return 0.0, f"result {n}: {ours.dtype}{list(ours.shape)}, torch {s.dtype}{list(s.shape)}"
        if not s.is_floating_point():
            if not torch.equal(ours, s):
                wrong = wrong or f"result {n}: {int((ours != s).sum())} of {s.numel()} integers differ"
            continue
        truth = (s if exact is None else exact[n]).double()
        finite = truth.isfinite()
        if not torch.equal(ours.isfinite(), finite):
            return 0.0, f"result {n}: {int((ours.isfinite() != finite).sum())} of {s.numel()} not finite"
        if not bool(finite.any()):
            continue
        largest = float(truth[finite].abs().max())
        error = float((ours.double() - truth)[finite].abs().max())
        own = float((s.double() - truth)[finite].abs().max()) if exact is not None else 3e-5 * largest
        if others and exact is not None:
            own = max(own, float((others[n].double() - truth)[finite].abs().max()))
        ratio = error / max(own, FLOOR * largest, 1e-30)
        worst = max(worst, ratio)
        if ratio > TIMES:
            wrong = wrong or f"result {n}: error {error:.2e}, torch's {own:.2e}, largest {largest:.2e}"
    return worst, wrong


def judge(library: str, name: str, routes: Iterable[str]) -> Iterator[dict[str, Any]]:
    """After each route, the outcome of all routes so far: {"status": …, "seconds": …, "ratio" or "why": …}.

    status: "ok", "wrong", "refused" (an error of autotensor), "raised" (any other exception), "not torch's".
    The parent process adds "died".
    """
    warnings.simplefilter("ignore")
    row: dict[str, Any] = {"library": library, "name": name, "routes": {}}
    try:
        module, args, kwargs = made(library, name)
    except Excluded as why:
        yield {**row, "excluded": str(why)}
        return
    row["parameters"] = sum(p.numel() for p in module.parameters())
    single, exact = references(module, args, kwargs)
    row["float64"] = exact is not None
    for route in routes:
        start = time.perf_counter()
        found: dict[str, Any] = {}
        try:
            got, others = WAYS[route](module, args, kwargs)
            if route == "convert":
                found["status"] = "ok"
            else:
                found["ratio"], why = compare(got, single, exact, others)
                found |= {"status": "wrong", "why": why} if why else {"status": "ok"}
                if why and (theirs := compare(exported(module, args, kwargs), single, exact)[1]):
                    raise NotOurs(f"torch.export's program differs from the module: {theirs}")
        except NotOurs as error:
            found |= {"status": "not torch's", "why": str(error)[:400]}
        except Exception as error:
            ours = type(error).__module__.startswith("autotensor") or str(error).startswith("eager: ")
            found["status"] = "refused" if ours else "raised"
            found["why"] = f"{type(error).__name__}: {error}"[:600]
            if not ours:
                found["where"] = traceback.format_exc(limit=-4)[-1500:]
        found["seconds"] = round(time.perf_counter() - start, 1)
        row["routes"][route] = found
        yield row


# -- many --------------------------------------------------------------------------------------------------


def drawn(seed: int, wanted: dict[str, int]) -> Iterable[tuple[str, str]]:
    """Every architecture in the order of the draw. The first ones that are in the frame count."""
    for library in wanted:
        order = names(library)
        random.Random(f"{seed}/{library}").shuffle(order)
        yield from ((library, n) for n in order)


def in_child(library: str, name: str, routes: list[str], limit_s: float) -> dict[str, Any]:
    """Runs `judge` in a child. If a signal or the limit ends the child, its current route has failed.

    The child is forked, because importing the libraries takes longer than most models. The parent computes
    nothing, so it has no threads that a fork would lose.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_judge_into, args=(theirs, library, name, routes))
    child.start()
    theirs.close()
    row: dict[str, Any] = {"library": library, "name": name, "routes": {}}
    end, note = time.monotonic() + limit_s, ""
    try:
        while ours.poll(max(0.0, end - time.monotonic())):
            row = ours.recv()
        child.kill()
        note = f"killed after {limit_s:.0f} s"
    except EOFError:
        child.join()
        note = f"exit status {child.exitcode}"
    child.join()
    left = [r for r in routes if r not in row["routes"]]
    if "excluded" not in row and left:
        row["routes"][left[0]] = {"status": "died", "why": note}
        if len(left) > 1 and "killed" not in note:
            row["routes"].update(in_child(library, name, left[1:], limit_s)["routes"])
    return row


def _judge_into(pipe: Any, library: str, name: str, routes: list[str]) -> None:
    import os

    for row in judge(library, name, routes):
        pipe.send(row)
    pipe.close()
    os._exit(0)  # libraries may fail at the end of a process; this does not count


def summary(rows: Iterable[dict[str, Any]], routes: Iterable[str]) -> str:
    rows = [r for r in rows if "excluded" not in r]
    lines = []
    for route in routes:
        for library in (*LIBRARIES, "all"):
            found = [
                r["routes"][route]["status"]
                for r in rows
                if route in r["routes"] and library in (r["library"], "all")
            ]
            if found:
                counts = Counter(found)
                judged = len(found) - counts["not torch's"]
                share = 100 * counts["ok"] / max(judged, 1)
                lines.append(f"{route:12} {library:13} {share:5.1f} % of {judged}: {dict(counts)}")
    return "\n".join(lines)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--draw", default="timm=75,torchvision=25,transformers=50")
    reader.add_argument("--seed", help="eight hex digits; the commit's if not given")
    reader.add_argument("--routes", default=",".join(ROUTES))
    reader.add_argument("--json", type=Path, default=Path("architectures.jsonl"))
    reader.add_argument("--limit", type=float, default=300, help="seconds for an architecture")
    reader.add_argument("--budget", type=float, default=1e9, help="seconds for all")
    reader.add_argument("--only", help="LIBRARY:NAME,… instead of a draw")
    reader.add_argument("--failed", action="store_true", help="again what failed, by the file")
    reader.add_argument("--report", action="store_true")
    asked = reader.parse_args()
    routes = asked.routes.split(",")
    known: dict[tuple[str, str], dict[str, Any]] = {}
    if asked.json.exists():
        for line in asked.json.read_text().splitlines():
            row = json.loads(line)
            before = known.get((row["library"], row["name"]))
            if before and "excluded" not in before and "excluded" not in row:
                row["routes"] = {**before["routes"], **row["routes"]}
            known[row["library"], row["name"]] = row
    if not asked.report:
        _run(asked, routes, known)
    print(summary(known.values(), routes))


def _run(asked: Any, routes: list[str], known: dict[tuple[str, str], dict[str, Any]]) -> None:
    for package in ("timm", "torchvision", "transformers", "torch.onnx", "torch._dynamo", "autotensor"):
        importlib.import_module(package)
    end = time.monotonic() + asked.budget
    seed = asked.seed or subprocess.check_output(["git", "rev-parse", "HEAD"], text=True)[:8]
    wanted = {k: int(v) for k, v in (w.split("=") for w in asked.draw.split(","))}
    if asked.only:
        todo: Iterable[tuple[str, str]] = [tuple(t.split(":", 1)) for t in asked.only.split(",")]  # type: ignore
    elif asked.failed:
        todo = [
            k
            for k, r in known.items()
            if any(r["routes"].get(w, {}).get("status") not in (None, "ok", "not torch's") for w in routes)
        ]
    else:
        todo = drawn(int(seed, 16), wanted)
    have: Counter[str] = Counter()
    for library, name in todo:
        if time.monotonic() > end:
            break
        if not asked.only and not asked.failed:
            if have[library] >= wanted[library]:
                continue
            row = known.get((library, name))
            if row and ("excluded" in row or all(r in row["routes"] for r in routes)):
                have[library] += "excluded" not in row
                continue
        row = in_child(library, name, routes, asked.limit)
        have[library] += "excluded" not in row
        before = known.get((library, name), {})
        row["routes"] = {**before.get("routes", {}), **row["routes"]}
        known[library, name] = row
        with asked.json.open("a") as file:
            file.write(json.dumps(row) + "\n")
        told = {r: (v["status"], v.get("seconds"), v.get("why", "")[:230]) for r, v in row["routes"].items()}
        print(library, name, row.get("excluded") or told, flush=True)


if __name__ == "__main__":
    main()
