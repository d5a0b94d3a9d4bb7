"""Hypotheses of a C2B audit: which values of which attributes are compared, and their captions."""
