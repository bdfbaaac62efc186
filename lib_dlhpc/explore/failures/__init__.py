"""Module 09: checkpoints, failures, versions."""
