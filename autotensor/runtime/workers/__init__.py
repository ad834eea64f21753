"""Processes that work for this one, and what they answer."""
