"""Steps of an evaluation: from counts, scores and embeddings to agreement between them. They know no models."""
