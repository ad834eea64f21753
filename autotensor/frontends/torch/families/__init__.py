"""Converters of ATen operators, one family of operators per file."""
