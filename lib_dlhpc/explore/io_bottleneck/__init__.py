"""Module 07: I/O bottlenecks."""
