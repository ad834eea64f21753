"""Columns that hold more than one value: the samples of a trial, and traces as sketches and decisions."""
