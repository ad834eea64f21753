"""Shipped schedules: the machines that may use or measure them; and checks of everything that is shipped."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from shelves import product, put, record, traces, use

from autotensor.base import switches
from autotensor.base.machine import host_machine
from autotensor.base.target import parse
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.measurer import LocalMeasurer
from autotensor.te.workload import Workload
from schedules import shipped
from schedules.machines import Fit, fit
from schedules.records import SCHEDULES, read_class, to_text

WORKLOAD, TARGET = product(), parse()
DEFAULT, FAST, OTHER = traces(WORKLOAD, TARGET)
WON = record(WORKLOAD, TARGET, FAST, DEFAULT)
ELSEWHERE = replace(host_machine(), cpu_model="Another CPU (1/2/3)")


@pytest.fixture
def place(tmp_path, monkeypatch):
    use(monkeypatch, tmp_path)
    return tmp_path


def used():
    found = shipped.untuned(WORKLOAD, TARGET, DEFAULT.hash)
    return None if found is None else found[1]


def seeds():
    return shipped.seeds(WORKLOAD, TARGET, DEFAULT.hash)


def test_the_same_class_of_machines_uses_it_untuned(place):
    put(place, WON)
    assert used() == FAST
    assert seeds() == [FAST]
    (offer,) = shipped.offers(WORKLOAD.key, TARGET)
    assert offer.verdict.fit is Fit.EXACT
    assert offer.origin == f"{host_machine().cpu_model}, 2026-11-22"


def test_a_machine_like_it_measures_it_first(place):
    put(place, WON, machine=ELSEWHERE)
    assert used() is None
    assert seeds() == [FAST]


def test_other_threads_measure_it_first(place):
    other = TARGET.with_threads(TARGET.num_cores + 1)
    put(place, replace(WON, target=other.key()), target=other)
    assert used() is None
    assert seeds() == [FAST]


def test_a_machine_unlike_it_is_only_told(place):
    narrow = replace(TARGET, vector_bytes=TARGET.vector_bytes // 2)
    put(place, replace(WON, target=narrow.key()), target=narrow)
    assert used() is None
    assert seeds() == []
    assert shipped.offers(WORKLOAD.key, TARGET) == ()
    (offer,) = shipped.offers(WORKLOAD.key, TARGET, refused=True)
    assert offer.verdict.fit is Fit.REFUSED
    assert not shipped.fits(TARGET)


def test_what_beat_another_default_is_measured_first(place):
    """Today's rules may be better than the schedules of that race."""
    put(place, replace(WON, default="of rules before"))
    assert used() is None
    assert seeds() == [FAST]


def test_what_the_rules_make_today_adds_nothing(place):
    put(place, record(WORKLOAD, TARGET, DEFAULT, OTHER))
    assert used() is None
    assert seeds() == []


@pytest.mark.parametrize(
    "broken",
    ['{"version":1,"steps":[["Parallel","t0","nowhere"]]}', '{"version":1,"steps":[["Unheard"]]}',
     '{"version":9,"steps":[]}'],
)  # fmt: skip
def test_what_no_longer_applies_is_passed_over(place, broken):
    put(place, replace(WON, trace=broken, trace_hash="broken"), replace(WON, name="second", ratio=0.7))
    assert used() == FAST
    assert seeds() == [FAST]


def test_the_best_comes_first_and_its_own_class_before_others(place):
    put(place, replace(WON, ratio=0.9))
    better = record(WORKLOAD, TARGET, OTHER, DEFAULT, ratio=0.1)
    put(place, better, machine=ELSEWHERE, name="elsewhere")
    assert used() == FAST
    assert seeds() == [FAST, OTHER]


def test_other_workloads_get_nothing(place):
    put(place, WON)
    assert shipped.offers(product(m=49).key, TARGET) == ()


def test_the_switch_turns_all_of_it_off(place):
    folder = put(place, WON)
    (folder / shipped.COST_MODEL).write_bytes(b"")
    assert shipped.cost_model(TARGET) == folder / shipped.COST_MODEL
    with switches.override(no_shipped=True):
        assert used() is None
        assert seeds() == []
        assert shipped.cost_model(TARGET) is None
        assert not shipped.fits(TARGET)
        assert len(shipped.inventory(TARGET)) == 1


def test_the_cost_model_of_this_class_goes_before_that_of_another(place):
    like, here = put(place, WON, machine=ELSEWHERE, name="a"), put(place, WON, name="b")
    assert shipped.cost_model(TARGET) is None
    (like / shipped.COST_MODEL).write_bytes(b"")
    assert shipped.cost_model(TARGET) == like / shipped.COST_MODEL
    (here / shipped.COST_MODEL).write_bytes(b"")
    assert shipped.cost_model(TARGET) == here / shipped.COST_MODEL


def test_files_of_machines_that_do_not_fit_are_not_read(place, monkeypatch):
    narrow = replace(TARGET, vector_bytes=TARGET.vector_bytes // 2)
    put(place, replace(WON, target=narrow.key()), target=narrow)
    monkeypatch.setattr(shipped, "_class", lambda folder: pytest.fail(f"{folder} was read"))
    assert shipped.offers(WORKLOAD.key, TARGET) == ()


# -- what really comes with the package ----------------------------------------------------------------------

SHIPPED = shipped.classes()


def check_records(folder: Path) -> None:
    """The conditions on every shipped class."""
    path = folder / SCHEDULES
    shelf = read_class(path)
    assert to_text(shelf) == path.read_text(), "export it again: the file is edited or out of order"
    assert len({(r.workload, r.target) for r in shelf.records}) == len(shelf.records) > 0
    for r in shelf.records:
        workload = Workload.from_text(r.text, r.name, r.workload)  # the key is the hash of the text
        assert shipped.applicable(r, workload), f"{r.name}: its trace no longer applies"
        assert Trace.from_json(r.trace).hash == r.trace_hash != r.default
        assert r.seeds


def test_what_is_shipped_reads_and_is_in_order():
    """All shipped files, which may be none: everything next to the text about them is a class that fulfils
    the conditions."""
    assert {f.name for f in shipped.PLACE.iterdir()} == {"README.md", *(f.name for f in SHIPPED)}
    for folder in SHIPPED:
        check_records(folder)


def test_the_check_of_what_is_shipped_sees_faults(place):
    check_records(put(place, WON, name="sound"))
    edited = put(place, WON, name="edited") / SCHEDULES
    edited.write_text(edited.read_text().replace('"product"', '"edited" '))
    for folder, fault in (
        (edited.parent, "is edited"),
        (put(place, name="empty"), "> 0"),
        (put(place, WON, replace(WON, name="again"), name="twice"), "== 2"),
        (put(place, replace(WON, trace_hash="another"), name="hash"), "another"),
        (put(place, replace(WON, seeds=()), name="unchecked"), "seeds"),
        (put(place, replace(WON, trace='{"version":9,"steps":[]}'), name="old"), "no longer applies"),
    ):
        with pytest.raises(AssertionError, match=fault):
            check_records(folder)


@pytest.mark.slow
def test_what_is_shipped_still_compiles_and_is_right(place):
    """Code generation may have changed since. So the schedules that this machine can run are compared with
    the oracle. One class of our own is always among them."""
    with closing(LocalMeasurer(TARGET, MeasureOptions(), numerics=algorithm_tolerance)) as measurer:
        for folder in (*SHIPPED, put(place, WON)):
            shelf = read_class(folder / SCHEDULES)
            verdicts = [fit(shelf.machine, t, host_machine(), parse()).fit for t in shelf.targets.values()]
            if Fit.REFUSED in verdicts:
                continue  # made for another kind of processor
            for r in shelf.records:
                workload = Workload.from_text(r.text, r.name, r.workload)
                (found,) = measurer.measure(workload, [Trace.from_json(r.trace)])
                assert found.ok, f"{folder.name}: {r.name}: {found.status} {found.error}"


def test_what_is_shipped_is_small():
    assert sum(f.stat().st_size for folder in SHIPPED for f in folder.iterdir()) < 1 << 20
