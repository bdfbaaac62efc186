"""Module 02: data parallelism."""
