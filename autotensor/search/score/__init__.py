"""Predicted times of candidates before measuring: features, roofline, models that correct the prior."""
