"""An experiment run from a page: predicted, simulated and measured side by side."""
