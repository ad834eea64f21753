"""What contestants and children run."""
