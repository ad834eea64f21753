"""From a schedule's state to loop IR: the pipeline, what targets can do, limits. Start at `pipeline.py`."""
