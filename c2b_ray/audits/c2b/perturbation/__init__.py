"""Perturbations: the same images blurred, dark, in fog and so on, and what that changes."""
