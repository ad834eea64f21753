"""Output for people: progress, plots, timelines, standalone programs, costs and steps of schedules."""
