"""Quantised graphs: tables for functions of bytes, rounded sums, views and transposes next to products."""
