"""Decompositions of operators into operators that have converters. Each family has a file; see `table.py`."""
