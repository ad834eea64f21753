"""The part of the machine that the system lets this process use: processor time, memory, tiles."""
