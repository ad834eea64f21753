"""Pictures for people: progress, plots, timelines, standalone programs; costs and steps of a schedule."""
