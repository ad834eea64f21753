"""Registry: finding, not finding, registering twice."""

from __future__ import annotations

import pytest

from autotensor.base.errors import InputError
from autotensor.base.registry import Registry


def test_registers_and_finds() -> None:
    things: Registry[object] = Registry("operator")

    @things.register("relu")
    def relu() -> int:
        return 1

    things.add("gelu", 2)
    assert relu() == 1
    assert things.get("relu") is relu
    assert things.names() == tuple(things) == ("gelu", "relu")
    assert things.items()[0] == ("gelu", 2)
    assert ("relu" in things, "tanh" in things, len(things)) == (True, False, 2)


def test_messages() -> None:
    things: Registry[int] = Registry("operator")
    with pytest.raises(InputError) as caught:
        things.get("relu")
    assert str(caught.value) == "operator 'relu' is unknown. Known: none."
    things.add("relu", 1)
    things.add("relu", 1)  # the same thing again, as when a module is reloaded
    things.add("gelu", 2)
    with pytest.raises(InputError) as caught:
        things.get("rleu")
    assert str(caught.value) == "operator 'rleu' is unknown. Did you mean 'relu'? Known: gelu, relu."
    with pytest.raises(InputError, match="operator 'relu' is registered twice"):
        things.add("relu", 3)
