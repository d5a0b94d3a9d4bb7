"""The page of a comparison of two classifiers or runs."""
