"""The steps of `c2b clip-bias`: pure functions from tables and arrays to tables and arrays."""
