"""Graphs over symbols: extents that are known when a model is called, found by looking at graphs of numbers."""
