"""The zoo of CLIP models with planted skew: networks, training, quality."""
