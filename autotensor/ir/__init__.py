"""The loop IR: expressions, statements, bounds, rewriting, simplification, meaning. Start at `node.py`."""
