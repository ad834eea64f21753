"""The prior: an estimate of a schedule's time from its loops and a machine's rates alone; its terms,
rates."""
