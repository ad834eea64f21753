"""Readers of other systems' models, and their common parts: heads of attention, transposed convolutions."""
