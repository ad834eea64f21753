"""What a run of the tuner did, as one page: figures from the log, sentences, charts. Start at `figures.py`."""
