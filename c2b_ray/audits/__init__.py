"""The audits, a package each, and `kit`: what they share. Each walks the path, or a stretch of it."""
