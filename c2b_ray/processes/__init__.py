"""Processes that call a function on tables, for a process that must not do that work itself. They know no pictures."""
