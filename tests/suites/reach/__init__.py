"""Devices reached: sketches of two pods, added up by Python and Spark as the guide says."""
