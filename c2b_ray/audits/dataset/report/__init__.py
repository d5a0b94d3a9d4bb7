"""Pages about a dataset of failures."""
