"""Each test writes its own graph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import autotensor.flow as tf


@pytest.fixture(autouse=True)
def own_graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield
