"""Readers of other systems' models, and what they share: attention's heads, transposed convolutions."""
