"""The report of one tuning run as a page: figures from the log, sentences, charts. See `figures.py`."""
