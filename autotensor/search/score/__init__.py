"""How fast a candidate will be, before it is measured: pictures, priors, features, learned models."""
