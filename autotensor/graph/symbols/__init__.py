"""Graphs over symbols: extents that are known when a model is called, found in graphs of numbers."""
