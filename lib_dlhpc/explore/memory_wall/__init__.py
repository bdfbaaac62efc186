"""Module 08: memory and out-of-core training."""
