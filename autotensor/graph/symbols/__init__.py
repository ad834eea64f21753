"""Graphs over symbols, which are extents that become known when a model is called."""
