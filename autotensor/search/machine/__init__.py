"""What this machine can do: calibration, probes, rates, micro-kernels; how well it can be measured."""
