"""Sampling: which images a cell draws, when its verdict is settled, and which cells get fresh images."""
