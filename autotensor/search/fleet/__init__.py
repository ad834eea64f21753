"""Measuring on many machines: classes, workers, their health, and dask as engine. See `fleet_measurer.py`."""
