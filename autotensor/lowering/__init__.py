"""From a schedule's state to loop IR: the pipeline, abilities of targets, limits. Start at `pipeline.py`."""
