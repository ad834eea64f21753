"""Readers of other systems' models, each making a graph of our operators; and what the readers share."""
