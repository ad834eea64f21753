"""From the state of a schedule to loop IR: the pipeline, what targets can do. Start at `pipeline.py`."""
