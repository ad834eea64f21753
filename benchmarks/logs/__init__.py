"""Very large tuning logs: how fast they are read, and how fast many processes write them."""
