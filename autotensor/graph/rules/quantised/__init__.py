"""Quantised graphs: functions of bytes as tables, rounded sums, views and transpositions next to products."""
