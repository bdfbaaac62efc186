"""Module 03: allreduce."""
