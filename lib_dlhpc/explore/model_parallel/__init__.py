"""Module 04: tensor and pipeline parallelism."""
