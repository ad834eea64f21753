"""Measures whole models (batch 1) in autotensor and every installed library, on the same cores, in one run.

    python benchmarks/models.py resnet18 bert_base                       default schedules
    python benchmarks/models.py resnet50 --trials 1000 --processes 5     also tuned, with bounds
    python benchmarks/models.py resnet50 --file old=resnet50.atm         also a compiled file
    python benchmarks/models.py resnet18 --contestants backend,torch-cl,inductor,inductor-cl
                                                                         torch.compile, our backend
    python benchmarks/models.py --runtimes --trials 300                  README's table: twelve runtimes

Without names, all models of the table are measured. All contestants have the same weights, drawn from a seed.
torch's modules are those of benchmarks/nets/plain.py. ONNX files are written from autotensor's graphs, or
from torch's modules if ONNX lacks an operator. A run continues its file of results. Writes JSON, a Markdown
table, and pictures with bars against each peer.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from contests import report
from contests.contest import SETUP_TIMEOUT_S, Contestant, Timing, ask, child_of, why_not
from contests.published_table import FILE
from contests.results import Results
from contests.table import Plan, Row, arguments, backend, chosen, installed, make, ours, peers
from jobs.networks import Network
from peers import Spec, cache_folder, environments

TITLE = "Models, batch 1"
NAMES = (
    "resnet18", "resnet50", "mobilenet_v2", "vgg16", "dcgan", "r3d_18", "bert_base", "gpt2",
)  # fmt: skip


def prepare(name: str, contestants: list[Contestant], suite: str = "models") -> str:
    """Makes the model's folder in a separate process. Returns the reason if that failed."""
    specs = [asdict(c.spec) for c in contestants if c.spec.kind == "ours" and not c.spec.file]
    first = Spec("ours", contestants[0].spec.threads)
    Network.named(name).clear()  # files of an earlier run must not be measured if this one fails
    with child_of(first) as child:
        asked = {"do": "prepare", "suite": suite, "job": name, "specs": specs}
        answer = ask(child, asked, SETUP_TIMEOUT_S)
    for note in answer.get("notes", []):
        print(f"{name}: {note}")
    return why_not(answer)


def files(options: argparse.Namespace) -> list[Contestant]:
    """The compiled files of --file NAME=PATH. Raises SystemExit for a file that does not exist."""
    found = []
    for item in options.file:
        name, _, path = item.rpartition("=")
        if not Path(path).is_file():
            raise SystemExit(f"there is no file {path}.")
        spec = Spec("ours", options.threads, file=str(Path(path).resolve()))
        found.append(Contestant(f"{FILE}{name or Path(path).stem}", spec, mine=True))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="names of built-in models; see `autotensor models`")
    parser.add_argument(
        "--deadline", metavar="TIME", help="tune each model for so long, 5m, in place of --trials"
    )
    parser.add_argument("--file", action="append", default=[], metavar="NAME=PATH", help="a compiled .atm")
    parser.add_argument(
        "--runtimes",
        action="store_true",
        help="every runtime that has a wheel; installs those that are missing",
    )
    arguments(parser, "models.json", "models.db", rounds=5, block_s=1.0)
    options = parser.parse_args()
    names = [*options.models, *(n for n in options.only.split(",") if n)] or list(NAMES)
    from autotensor.cli.options import duration_s
    from autotensor.models import MODELS

    if wrong := [n for n in names if n not in MODELS.names()]:
        raise SystemExit(f"no model is called {wrong[0]!r}. Known: {', '.join(MODELS.names())}.")
    limit_s = None if options.deadline is None else duration_s(options.deadline)
    is_tuned = bool(options.trials) or limit_s is not None
    if options.runtimes:
        environments.make()
    everybody = [
        *ours(options.threads, options.log, is_tuned),
        *files(options),
        *backend(options.threads, options.log, is_tuned),
        *peers(options.threads, cache_folder(), runtimes=options.runtimes),
    ]
    contestants = installed(chosen(everybody, options.contestants))
    rows = [Row(n, Network.named(n).facts, partial(prepare, n, contestants)) for n in names]
    timing = Timing(options.rounds, options.block, options.tries, options.seed)
    plan = Plan("models", rows, contestants, timing, options.processes, retry=options.retry)

    def write(results: Results) -> None:
        report.write(results, scale=1e3, unit="ms")

    return make(plan, options, TITLE, write, limit_s)


if __name__ == "__main__":
    sys.exit(main())
