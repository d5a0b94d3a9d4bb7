"""The page of a search of latent directions."""
