"""The abilities of this machine: calibration, probes, micro-kernels, and the quality of its measurements."""
