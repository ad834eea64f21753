"""Vectors made of lanes: shuffled, from a few stretches of memory, looked up in tables of bytes."""
