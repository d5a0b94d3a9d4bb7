"""The report of `c2b prompts`."""
