"""Module 06: large batches and LARS."""
