"""A compiled function as a C library: header, object, weights, example. No compiler is needed. See
`write.py`."""
