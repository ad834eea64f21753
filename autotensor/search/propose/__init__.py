"""Which candidates are measured next: spaces, drafts, batches, budgets, the tuner of one task."""
