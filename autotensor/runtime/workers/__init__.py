"""Processes that work for this one, and the answers that they send."""
