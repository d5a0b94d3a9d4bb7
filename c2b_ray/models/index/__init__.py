"""Image indexes in faiss: their files, how they are planned and built, and searching them."""
