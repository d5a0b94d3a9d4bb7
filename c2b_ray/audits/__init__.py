"""The audits, a package each, and `kit`, which they share. Each walks the path, or a stretch of it."""
