"""Public annotations as labelled tables: which images, of which class, with which attributes."""
