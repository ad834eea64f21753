"""Reductions of integers in fewer bits, with the same results: sums, and indices next to values (arg-max)."""
