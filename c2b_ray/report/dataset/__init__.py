"""Pages about datasets of failures."""
