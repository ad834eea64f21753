"""Reductions of integers in fewer bits, where the result is the same: places next to values, and sums."""
