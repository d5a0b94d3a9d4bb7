"""Scores: accuracy and φ of every cell, intervals, tests, verdicts, and what is shared over classes."""
