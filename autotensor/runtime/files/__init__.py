"""What compiled functions and arrays are as bytes: `.atm` files, checkpoints, the cache of objects."""
