"""Verbs of `autotensor db` that ask the tuning log and print one table each, or that make the log smaller."""
