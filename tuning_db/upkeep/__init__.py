"""Upkeep of a log: unneeded trials are deleted, their space is given back."""
