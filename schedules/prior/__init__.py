"""How long a schedule will take by its loops and a machine's rates alone: the prior, its terms, rates."""
