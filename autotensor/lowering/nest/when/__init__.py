"""Which points and terms are computed, and when."""
