"""State → loop IR: nests of loops, with boxes, guards, marks, updates. Start at `nest.py`."""
