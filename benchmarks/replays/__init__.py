"""Searches, races, cost models and their variants, replayed on earlier measurements."""
