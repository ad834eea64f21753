"""One command for a machine with a card: it checks that everything is right, and compares speeds with the
libraries.

    python benchmarks/gpu.py [--target "cuda -arch=sm_90"] [--out FILE.json] [--minutes 10] [--trials 200]
    python benchmarks/gpu.py --rehearse          the same without a card: NumPy executes NVRTC's PTX

Stages run in child processes with time limits (card/stages.py). If something stops a stage, the report names
this failure, and the other stages still run. After the command was killed, the same command continues;
`--afresh` starts again. The output is the JSON file `--out`, and next to it a page of HTML, with ten lines of
code to show each failure again, and the journal.

Without `--target`, the card's own limits give the target. Without torch, cuBLAS is timed through CuPy, and
cuDNN is not timed. On OpenCL sizes are small, and the rival is a product written by hand (hand_gemm.py).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PATHS = [str(HERE), str(ROOT / "tests" / "kit"), str(ROOT / "tests"), str(ROOT)]
STAND_IN = str(HERE / "simulated_card" / "stand_in")
MINUTES, REHEARSAL_MINUTES = 10, 60  # minutes; a rehearsal takes seven on two free cores
ANSWER_S = 60.0  # seconds for a driver to say which card there is
NEVER = "CUDA: compiled by NVRTC, executed by simulation; nothing here was run on a card."


def main(given: list[str] | None = None) -> int:
    """Runs the command. Returns the number of failures, at most 100."""
    asked = arguments(given)
    environment = {
        "PYTHONPATH": os.pathsep.join([*([STAND_IN] if asked.rehearse else []), *PATHS, *_given_path()])
    }
    environment |= {"STAND_IN_FAULTS": asked.plant} if asked.plant else {}
    out = asked.out or HERE / "results" / ("gpu-rehearsal.json" if asked.rehearse else "gpu.json")
    sys.path[:0] = PATHS
    from card.conduct import Limits, conduct
    from card.failures import NOT_RUN
    from card.journal import Journal
    from card.machine import what_is_here
    from card.page import page, report
    from card.stages import STAGES, Setting

    from autotensor.base.source_hash import source_digest

    target = asked.target or own_target(environment)
    setting = Setting(target, asked.rehearse or target.startswith("opencl"), asked.trials)
    journal = Journal(out.with_suffix(".jsonl"))
    if asked.afresh:
        journal.file.unlink(missing_ok=True)
    journal.begin(
        [
            target,
            asked.rehearse,
            asked.trials,
            source_digest((ROOT / "autotensor", ROOT / "schedules", HERE / "card")),
        ]
    )
    stages = [s for name, s in STAGES.items() if not asked.stages or name in ("card", *asked.stages)]
    minutes = asked.minutes or (REHEARSAL_MINUTES if asked.rehearse else MINUTES)
    limits = Limits(60 * minutes, asked.stage_s, asked.item_s)
    with tempfile.TemporaryDirectory() as own:
        # a rehearsal's times mean nothing, so it has its own lock: it and real timings need not wait for each
        # other
        if asked.rehearse:
            environment["TMPDIR"] = own
        conduct(setting, journal, stages, limits, environment, tuple(asked.only))
    planted, note = (asked.plant, NEVER) if asked.rehearse else (None, "On this machine.")
    result = report(journal, setting, planted, note, what_is_here())
    out.write_text(json.dumps(result, indent=1, default=str) + "\n")
    out.with_suffix(".html").write_text(page(result))
    for name, stage in result["stages"].items():
        print(f"{name:10} {stage['right']:4} right {stage['failed']:4} failed")
    for f in result["failures"]:
        if f["kind"] != NOT_RUN:
            print(f"{f['stage']}/{f['item']}: {f['kind']}: {f['what']}")
    for step in result["to_do"]:
        print(f"To do: {step}")
    print(f"{out}, {out.with_suffix('.html')}")
    return min(100, len(result["failures"]))


def own_target(environment: dict[str, str]) -> str:
    """The target of this machine's card, found in a child process. If no card answers, it is the default
    target, and stage `card` fails with the reason."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from card.checks import own_target; print(own_target())"],
            env={**os.environ, **environment, "CARD_ITEM": "card/target"},
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "cuda"
    return done.stdout.strip() if done.returncode == 0 else "cuda"


def _given_path() -> list[str]:
    return [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="")
    parser.add_argument(
        "--minutes", type=float, help=f"default: {MINUTES}; of a rehearsal {REHEARSAL_MINUTES}"
    )
    parser.add_argument("--trials", type=int, default=200, help="of tuning, three tasks together")
    parser.add_argument("--out", type=Path, help="default: results/gpu.json")
    parser.add_argument("--stages", nargs="*", default=[])
    parser.add_argument("--only", nargs="*", default=[], help="items, as stage/item")
    parser.add_argument("--afresh", action="store_true", help="forget what an earlier run has found")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--plant", default="", help="faults of a rehearsal, JSON: stage/item to a name")
    parser.add_argument("--item-s", type=float, help="another limit for every item")
    parser.add_argument("--stage-s", type=float, help="another limit for every stage")
    return parser.parse_args(given)


if __name__ == "__main__":
    sys.exit(main())
