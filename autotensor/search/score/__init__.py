"""How fast a candidate will be, before it is measured: features, roofline, models that correct the prior."""
