"""Image indexes in faiss: files, planning, building and search."""
