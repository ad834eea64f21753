"""Hooks through which other projects call autotensor."""
