"""Decides which points and terms are computed, and when: skipped, unread, overhanging, prefetched."""
