"""A compiled function as a C library: header, one object, weights, an example; no tool needed. See `write.py`."""
