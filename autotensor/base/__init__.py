"""The ground floor: errors, dtypes, names, targets, entry points, overloads, deadlines, this machine."""
