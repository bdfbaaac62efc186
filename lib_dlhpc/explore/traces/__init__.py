"""Module 11: traces and waits."""
