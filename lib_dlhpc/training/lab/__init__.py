"""The base of the labs in labs/: emulated ranks, recorded steps, findings."""
