"""The search of `c2b latent` through a generator's latent space: objective, optimisation and baselines."""
