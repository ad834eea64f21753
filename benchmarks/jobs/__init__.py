"""What contestants and children run: operators, networks, training, MetaSchedule; what a trial costs."""
