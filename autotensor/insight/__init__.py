"""Pictures for people: progress, plots, timelines; what a schedule costs, what its steps are worth."""
