"""Loop IR → binary: a backend per kind of target."""
