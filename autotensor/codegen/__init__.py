"""Loop IR → binary: backends by kind of target, declared instructions, kernels that measure a machine."""
