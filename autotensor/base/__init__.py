"""What everything stands on: errors, dtypes, targets, plug-ins, switches, deadlines, this machine."""
