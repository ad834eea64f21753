"""Decides which points and terms are computed or left out, and which stages are computed ahead."""
