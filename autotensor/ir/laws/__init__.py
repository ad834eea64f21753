"""The laws by which `simplify` rewrites expressions, one kind of expression per file."""
