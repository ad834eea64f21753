"""Compiled functions as bytes: artifacts, manifests, `.atm` files, checkpoints, caches."""
