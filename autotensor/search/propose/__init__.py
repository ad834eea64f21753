"""Which candidates are measured next: populations, drafts, phases, transfer, allocation, stopping."""
