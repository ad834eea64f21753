"""What people call. Defaults and wiring live here; everything else is below.

kernels.py    lower, build, tune: one computation, by hand or by search
models.py     compile_model, tune_model: whole models
loading.py    load: saved kernels and models
log.py        where the tuning log is
tuning.py     a tuning run on this machine
"""
