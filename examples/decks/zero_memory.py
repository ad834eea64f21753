"""M23: ZeRO's table, 7.5 billion parameters on 64 devices: 120, 31.4, 16.6, 1.9 GB. Calculated, not run."""

from autotensor.insight.zero import zero_table

table = zero_table(7.5e9, devices=64, state_bytes=12)
print(table)
assert [round(n / 1e9, 1) for n in table.bytes] == [120.0, 31.4, 16.6, 1.9]
