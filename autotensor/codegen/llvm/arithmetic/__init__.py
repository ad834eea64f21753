"""How numbers are computed: casts, integers, extremes, mathematical functions; each result is defined."""
