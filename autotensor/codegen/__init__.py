"""Loop IR → binary: a backend for each kind of target, and yardsticks of what a machine can do at most."""
