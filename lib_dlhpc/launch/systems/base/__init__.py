"""system.py: System, what a file of a batch system declares; run, its commands."""
