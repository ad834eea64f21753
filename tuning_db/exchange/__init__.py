"""Exchange between a log and other logs, JSON Lines, tables for people and models."""
