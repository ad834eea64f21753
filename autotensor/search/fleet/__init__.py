"""Measuring on many machines: classes, workers, their health; dask as engine. See `fleet_measurer.py`."""
