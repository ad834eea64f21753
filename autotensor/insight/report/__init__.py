"""A run of the tuner as one page: figures of the log, sentences, charts. See `figures.py`."""
