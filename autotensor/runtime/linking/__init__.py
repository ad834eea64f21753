"""From object files to code in this process."""
