"""How fast a candidate will be, before it is measured: priors, their terms, features, cost models."""
