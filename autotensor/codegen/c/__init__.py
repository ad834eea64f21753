"""Kernels as source text of the C family: OpenCL C and CUDA C++. Start reading at `kernel.py`."""
