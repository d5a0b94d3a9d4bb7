"""The search of `c2b latent` through a generator's latent space: what is minimised, how, and the baselines."""
