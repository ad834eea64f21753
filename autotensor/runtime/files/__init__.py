"""What compiled functions are as bytes: artifacts, manifests, `.atm` files, checkpoints, caches."""
