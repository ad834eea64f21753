"""What keeps a log small: trials that nobody needs deleted, the space of what went given back."""
