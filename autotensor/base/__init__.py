"""The ground floor: errors, dtypes, names, targets, doors, overloads, deadlines, this machine."""
