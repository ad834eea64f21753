"""Operators taken apart into those that have converters: one family per file, filed by `table.py`."""
