"""Spark job on a real master with two workers: its chunks equal those of `rtad-loader build`."""
