"""Memory of data-parallel training on each device, if parts of the training state are divided: ZeRO's table.

    Ψ parameters, mixed precision: 2 bytes of weights, 2 of gradients, K of optimiser state (12 for Adam)

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020,
figure 1. The table is computed from formulas alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotensor.base.errors import InputError

STAGES = ("nothing", "optimiser state", "and gradients", "and parameters")


@dataclass(frozen=True, slots=True)
class ZeroTable:
    """Bytes on each device. STAGES names the parts that are divided among all devices, row by row."""

    parameters: float
    devices: int
    state_bytes: int  # bytes of optimiser state for each parameter
    bytes: tuple[float, float, float, float]

    def __str__(self) -> str:
        state = f"{self.state_bytes} bytes of state each"
        head = f"{self.parameters:.3g} parameters, {state}, {self.devices} devices"
        rows = (f"{what:>16} divided: {n / 1e9:6.1f} GB" for what, n in zip(STAGES, self.bytes, strict=True))
        return "\n".join([head, *rows, "GB: " + " ".join(f"{n / 1e9:6.1f}" for n in self.bytes)])


def zero_table(parameters: float, devices: int, state_bytes: int = 12) -> ZeroTable:
    """The four rows of the table. Raises InputError for counts below 1.

    >>> print(zero_table(7.5e9, 64).__str__().splitlines()[-1])
    GB:  120.0   31.4   16.6    1.9
    """
    if parameters < 1 or devices < 1 or state_bytes < 0:
        raise InputError(
            f"zero_table: {parameters} parameters on {devices} devices; both must be at least 1."
        )
    p, n, k = float(parameters), devices, state_bytes
    rows = ((4 + k) * p, 4 * p + k * p / n, 2 * p + (2 + k) * p / n, (4 + k) * p / n)
    return ZeroTable(p, n, k, rows)
