"""Steps of an evaluation: from counts, scores and embeddings to what agrees with what. They know no models."""
