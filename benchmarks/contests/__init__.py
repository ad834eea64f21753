"""Contests of many programs for one job: their processes, tables, files, pictures."""
