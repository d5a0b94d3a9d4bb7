"""The audits: each walks the path, or a stretch of it, and reads as prose."""
