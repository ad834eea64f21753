"""Rules of register tiles: products, convolutions, windows, attention."""
