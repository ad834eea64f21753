"""What a run of the tuner did, as one page: figures of the log, sentences, charts. See `figures.py`."""
