"""The answers of `autotensor explain`: tasks, schedules, pictures of searches."""
