"""The index page of many runs."""
