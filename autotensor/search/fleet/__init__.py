"""Measuring on many machines: classes, workers, their health; dask.distributed behind one door. See `fleet_measurer.py`."""
