"""The prior estimates a schedule's time from its loops and a machine's rates alone."""
