"""Questions to the tuning log: the verbs of `autotensor db` that print one table each; its upkeep."""
