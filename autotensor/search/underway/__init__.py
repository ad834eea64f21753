"""Tasks and batches of a run while it goes on."""
