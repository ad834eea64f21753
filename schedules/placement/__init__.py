"""Where stages of a pipeline are computed: who reads whom at how many points, costs, the cheapest."""
