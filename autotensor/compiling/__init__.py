"""Many kernels compiled at once."""
