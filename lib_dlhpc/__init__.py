"""Describe a training run once, then predict it, simulate it, run it for real, and compare."""

__version__ = "0.1.0"
