"""Module 05: hybrid and spatial parallelism."""
