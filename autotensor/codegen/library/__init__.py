"""Compiled functions as a C library: header, object, weights, example. No compiler needed. See `write.py`."""
