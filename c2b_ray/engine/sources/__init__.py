"""Sources of images and embeddings as Ray datasets: folders, Parquet tables, WebDataset shards, clip-retrieval."""
