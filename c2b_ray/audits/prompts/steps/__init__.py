"""Prompts that expose a generator: the search for them, the values that they leak, and the effects of their words."""
