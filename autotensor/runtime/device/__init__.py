"""Memory and kernels that are not the processor's own: CUDA, OpenCL, PoCL."""
