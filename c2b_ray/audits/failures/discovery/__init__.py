"""Finding captions that make a classifier fail: the pure parts of `c2b failures`. No Ray, no files."""
