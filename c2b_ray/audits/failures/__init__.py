"""The audit `failures`: which captions make a classifier fail, and how often."""
