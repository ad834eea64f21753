"""State → loop IR: the nests of stages. Start reading at `nest.py`."""
