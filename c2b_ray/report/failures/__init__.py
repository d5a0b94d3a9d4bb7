"""The report of `c2b failures`: its page and its summary."""
