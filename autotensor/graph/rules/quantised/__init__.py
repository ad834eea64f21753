"""Quantised graphs: scaled values, products in integers, rounded sums, views next to products, tables."""
