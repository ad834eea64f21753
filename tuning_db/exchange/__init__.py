"""What leaves a log and comes into it: other logs, JSON Lines, tables for people and models."""
