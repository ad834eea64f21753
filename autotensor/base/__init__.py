"""What everything stands on: errors, dtypes, names, targets, doors, overloads, deadlines, this machine."""
