"""Measuring candidates: built in children, run, checked against an oracle, timed and raced side by side."""
