"""The product written by hand is right for every tile that fits, on a small size."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.opencl


def test_every_tile_is_right() -> None:
    from nets import hand_gemm

    from autotensor.runtime.device.devices import open_device

    seconds, tile = hand_gemm.best(open_device("opencl"), 128)  # asserts that each is
    assert seconds > 0
    assert tile in hand_gemm.TILES


def test_sizes_that_no_tile_fits_are_refused() -> None:
    from nets import hand_gemm

    from autotensor.runtime.device.devices import open_device

    with pytest.raises(ValueError, match="no tile fits 100 x 100"):
        hand_gemm.best(open_device("opencl"), 100)
