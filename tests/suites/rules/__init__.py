"""Strategies as a whole: random configs and requests, against a model written from the docs."""
