"""The choice of the next candidates: populations, drafts, phases, transfer, allocation, stopping."""
