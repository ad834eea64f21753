"""The loop IR: nodes, rewriting, simplification, what every operation means. Start reading at `node.py`."""
