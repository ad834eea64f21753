"""Measures candidates: child processes build them, check them against an oracle, time and race them."""
