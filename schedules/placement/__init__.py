"""Places where stages of a pipeline are computed: reads between stages, costs, the cheapest places."""
