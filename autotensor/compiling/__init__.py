"""The new kernels of a model, compiled on all cores: by this process and by children."""
