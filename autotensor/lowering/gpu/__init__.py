"""Passes for GPUs: threads, barriers and their proof, banks, copies, tensor instructions, launches."""
