"""The prior: a schedule's time, estimated from its loops and a machine's rates alone; its terms, rates."""
