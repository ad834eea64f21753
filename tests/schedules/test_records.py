"""Tuned schedules as text: round trips, merging, and the errors of damaged files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotensor.base.errors import InputError
from autotensor.base.machine import HostMachine
from autotensor.base.target import Target
from schedules.records import TunedClass, TunedRecord, merged, read_class, read_header, to_text

MACHINE = HostMachine("AMD EPYC (25/17/1)", ("avx2", "fma"), 2, (32768, 1048576))
TARGETS = {"llvm/znver4/v64/t2": Target("llvm", "znver4", num_cores=2, vector_bytes=64, vector_registers=32)}
RECORD = TunedRecord(
    name="dense", workload="w1", text='{"a":[1],"b":2}', target="llvm/znver4/v64/t2",
    trace='{"version":1,"steps":[]}',
    trace_hash="t1", default="d1", seconds=1e-3, default_s=2e-3, ratio=0.5, samples=9, residency="graph",
    max_error=1e-6, tolerance=1e-5, seeds=(0, 1), sketch="s", decisions={"tile": (4, 16)},
    made_by="drafted", date="2026-11-22", versions={"llvmlite": "0.50.0"},
)  # fmt: skip


def shelf(*records: TunedRecord) -> TunedClass:
    return TunedClass(MACHINE, TARGETS, records)


def test_text_is_one_line_a_record_in_order(tmp_path):
    path = tmp_path / "schedules.jsonl"
    records = (replace(RECORD, name="conv", workload="w2"), RECORD)
    text = to_text(shelf(*reversed(records)))
    path.write_text(text)
    assert read_class(path) == shelf(*records)
    assert read_header(path) == (MACHINE, TARGETS)
    assert text == to_text(read_class(path))
    assert [line.partition(",")[0] for line in text.splitlines()[1:]] == ['{"name":"conv"', '{"name":"dense"']


def test_times_are_kept_to_four_digits(tmp_path):
    path = tmp_path / "schedules.jsonl"
    path.write_text(to_text(shelf(replace(RECORD, seconds=1.23456789e-5))))
    assert read_class(path).records[0].seconds == 1.235e-5


def test_merging_keeps_the_greater_gain_over_the_same_default():
    slower, faster = replace(RECORD, ratio=0.9, trace_hash="a"), replace(RECORD, ratio=0.4, trace_hash="b")
    for old, new in ((slower, faster), (faster, slower)):
        assert merged(shelf(old), [new], TARGETS).records == (faster,)


def test_merging_keeps_what_beat_the_newer_default():
    """Other rules make another default. The gain over the old default says nothing about it."""
    old = replace(RECORD, ratio=0.1, default="before", date="2026-01-01")
    for first, second in ((old, RECORD), (RECORD, old)):
        assert merged(shelf(first), [second], TARGETS).records == (RECORD,)


def test_merging_names_the_targets_that_are_used():
    more = {**TARGETS, "llvm/znver4/v64/t1": Target("llvm", "znver4")}
    assert set(merged(shelf(RECORD), [], more).targets) == set(TARGETS)
    second = replace(RECORD, target="llvm/znver4/v64/t1")
    both = merged(shelf(RECORD), [second], more)
    assert set(both.targets) == set(more)
    assert len(both.records) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ratio": 1.0}, "ratio is 1.0; a record must be faster than the default"),
        ({"max_error": 1e-4}, "error 0.0001 is above the tolerance 1e-05"),
        ({"max_error": float("nan")}, "error nan is above the tolerance 1e-05"),
    ],
)
def test_what_is_no_win_or_was_wrong_is_no_record(change, message):
    with pytest.raises(ValueError, match=message):
        replace(RECORD, **change)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [lines[0], "{"], "line 2 of .* is not a tuned schedule"),
        (lambda lines: [lines[0], lines[1].replace('"ratio":0.5', '"ratio":2')], "must be faster"),
        (lambda lines: [lines[0], lines[1].replace("/t2", "/t3")], "not in the header"),
        (lambda lines: [lines[0].replace('"version":1', '"version":2'), lines[1]], "version 2"),
        (lambda lines: ["[]"], "holds no tuned schedules"),
        (lambda lines: [""], "holds no tuned schedules"),
    ],
)
def test_damaged_files_are_refused_in_one_sentence(tmp_path, damage, message):
    path = tmp_path / "schedules.jsonl"
    path.write_text("\n".join(damage(to_text(shelf(RECORD)).splitlines())))
    with pytest.raises(InputError, match=message) as caught:
        read_class(path)
    assert "AUTOTENSOR_NO_SHIPPED=1" in caught.value.fix
