"""Rules that put other stages in place of one, which go through all rules again: by an algorithm."""
