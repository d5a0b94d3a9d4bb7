"""The page of a prompt search."""
