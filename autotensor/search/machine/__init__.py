"""The abilities of this machine: calibration, probes, rates, micro-kernels; how well it can be measured."""
