"""Loop IR → binary: a backend for each kind of target, declared instructions, yardsticks of a machine."""
