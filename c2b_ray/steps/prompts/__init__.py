"""Prompts that expose a generator: the search for them, what they leak, and what their words do."""
