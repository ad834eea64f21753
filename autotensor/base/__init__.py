"""What everything stands on: errors, element types, targets, names, plug-ins."""
