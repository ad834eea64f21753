"""How lanes become vectors: shuffles, loads of a few stretches of memory, lookups in tables of bytes."""
