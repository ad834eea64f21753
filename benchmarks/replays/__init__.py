"""Searches, races and cost models replayed on what was measured before."""
