"""Contests of many programs that do one job: their processes, tables, files, pictures."""
