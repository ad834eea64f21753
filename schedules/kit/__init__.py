"""Tools that several sketch rules share: questions about stages, tiles, costs, and steps."""
