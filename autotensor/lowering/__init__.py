"""From the state of a schedule to the loop IR that backends accept. Start reading at `pipeline.py`."""
