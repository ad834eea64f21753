"""Tasks and batches of a run, under way."""
