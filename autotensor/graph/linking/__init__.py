"""Compiled groups as one program: the places of values, launches, constants, a check of every plan."""
