"""The laws by which `simplify` rewrites, one kind of expression per file."""
