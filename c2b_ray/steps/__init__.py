"""The arrows of the path: pure functions from table or batch to table or batch, which get roles. No Ray, no files."""
