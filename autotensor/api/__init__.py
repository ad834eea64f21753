"""The public functions: they build, tune, race, load and train kernels and models, here or on a cluster.

kernels.py    lower, build, tune: one computation, by hand or by search
models.py     compile_model, tune_model: whole models
loading.py    load: saved kernels and models
log.py        where the tuning log is
tuning.py     a tuning run on this machine
fleet.py      a tuning run on the machines of a fleet
"""
