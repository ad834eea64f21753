"""Keeps and joins the partial results of a divided reduction: by lanes, by threads, by shuffles."""
