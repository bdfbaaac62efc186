"""Pages of the labs."""
