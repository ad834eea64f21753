"""What this machine can do, and how well it can be measured."""
