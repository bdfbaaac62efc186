"""An experiment submitted to a batch system from a page."""
