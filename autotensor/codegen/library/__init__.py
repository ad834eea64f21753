"""A compiled function as a C library: header, object, weights, example; without any tool. See `write.py`."""
