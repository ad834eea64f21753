"""The jobs that contestants and child processes run: operators, networks, training, MetaSchedule; the cost of
a trial."""
