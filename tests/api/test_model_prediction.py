"""Predicted against measured end-to-end."""

from __future__ import annotations

from autotensor.api.model_prediction import disagreement, predicted_s, task_times

WEIGHTS = {"a": ("conv2d", 4.0), "b": ("dense", 1.0), "c": ("pool", 1.0)}


def test_what_was_not_timed_counts_as_it_is_inside() -> None:
    times = task_times(WEIGHTS, {"a": 1e-3, "b": 2e-3}, {"a": 4.2e-3, "b": 1.9e-3, "c": 0.5e-3})
    assert [round(t.tuner_s * 1e3, 6) for t in times] == [4.0, 2.0, 0.5]
    assert predicted_s(times) == sum(t.tuner_s for t in times)


def test_close_enough_is_no_disagreement() -> None:
    times = task_times(WEIGHTS, {"a": 1e-3, "b": 2e-3, "c": 1e-3}, {"a": 4e-3, "b": 2e-3, "c": 1e-3})
    assert disagreement(times, 7.6e-3) == disagreement(times, 6.4e-3) == ""


def test_the_tasks_that_disagree_are_named() -> None:
    times = task_times(WEIGHTS, {"a": 2e-3, "b": 2e-3, "c": 1e-3}, {"a": 4e-3, "b": 2e-3, "c": 1e-3})
    assert disagreement(times, 7e-3) == (
        "the tasks add up to 11 ms, 57 % more than measured; "
        "most of it in conv2d (8 ms alone, 4 ms in the model)"
    )


def test_a_task_that_is_apart_the_other_way_is_not_named() -> None:
    times = task_times(WEIGHTS, {"a": 2e-3, "b": 2e-3, "c": 1e-3}, {"a": 9e-3, "b": 3e-3, "c": 1e-3})
    assert disagreement(times, 7e-3) == (
        "the tasks add up to 11 ms, 57 % more than measured; most of it in no single task"
    )
    assert disagreement(times, 13e-3).endswith("; most of it in dense (2 ms alone, 3 ms in the model), "
        "conv2d (8 ms alone, 9 ms in the model)")  # fmt: skip
