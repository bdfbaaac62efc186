"""What every page is built of: figures, questions, controls beside results, runs with progress."""
