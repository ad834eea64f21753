"""The wheel holds what it must, and works where the sources are not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLASSES = len(list((ROOT / "schedules" / "tuned").glob("*/schedules.jsonl")))

PROGRAM = """
import autotensor, schedules, tuning_db, numpy as np
for module in (autotensor, schedules, tuning_db):
    assert module.__file__.startswith({home!r}), module.__file__
from autotensor.models import MODELS
from autotensor.cli.images import imagenet_classes
assert len(imagenet_classes()) == 1000
m = autotensor.compile_model(MODELS.get("small_cnn").build())
assert m(np.zeros((1, 1, 8, 8), "float32")).shape == (1, 10)
with tuning_db.connect("log.db") as log:
    assert log.check().ok
from schedules import shipped
from schedules.records import SCHEDULES, read_class
assert all(read_class(folder / SCHEDULES).records for folder in shipped.classes())
assert len(shipped.classes()) == {classes}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    isolation = [] if find_spec("hatchling") is None else ["--no-build-isolation"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", *isolation, "-w", str(out), str(ROOT)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("autotensor-*.whl")
    return made


@pytest.mark.slow
def test_what_is_inside(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "autotensor/py.typed", "schedules/py.typed", "tuning_db/py.typed",
        "autotensor/cli/data/imagenet_classes.txt",
        "autotensor/models/data/small_cnn.npz", "tuning_db/migrations/versions/v0001_everything.py",
    ):  # fmt: skip
        assert wanted in names
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {
        "autotensor",
        "schedules",
        "tuning_db",
    }
    assert not [n for n in names if n.endswith((".atm", ".db", ".pyc"))]


@pytest.mark.slow
def test_installed_elsewhere(wheel, tmp_path):
    home = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "-q", "--target", str(home), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(home), "AUTOTENSOR_DB": str(tmp_path / "own.db")}
    tune = ["tune", "mlp", "--trials", "3", "--threads", "1"]
    for command in (
        [sys.executable, "-c", PROGRAM.format(home=str(home), classes=CLASSES)],
        [str(home / "bin" / "autotensor"), "models"],
        [sys.executable, "-m", "autotensor.cli.main", *tune],
    ):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "mlp.atm").exists()
