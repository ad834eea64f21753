"""Measuring candidates: built in children, checked against references, raced side by side."""
