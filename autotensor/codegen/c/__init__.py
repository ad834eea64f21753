"""Kernels as source of the C family (OpenCL C, CUDA C++): dialects, resources. Start at `kernel.py`."""
