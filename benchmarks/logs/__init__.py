"""The tuning log at sizes that no run of a day reaches: how fast it is read, and written by many."""
