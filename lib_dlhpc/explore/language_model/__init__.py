"""Module 12: training a large language model."""
