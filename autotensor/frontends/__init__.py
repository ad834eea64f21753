"""Readers of other systems' models; each makes a graph (`autotensor/graph/ir.py`) of our operators."""
