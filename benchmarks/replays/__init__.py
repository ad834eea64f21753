"""Searches, races, cost models and variants of them, replayed on what was measured before."""
