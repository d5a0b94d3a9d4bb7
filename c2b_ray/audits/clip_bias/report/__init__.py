"""The page of a measurement of CLIP models."""
