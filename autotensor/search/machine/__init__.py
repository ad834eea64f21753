"""The abilities of this machine: calibration, probes, micro-kernels; how well it can be measured."""
