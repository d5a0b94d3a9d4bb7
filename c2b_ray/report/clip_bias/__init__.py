"""The report of `c2b clip-bias`, its summary in a terminal, and its exports."""
