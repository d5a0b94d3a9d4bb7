"""The world of `c2b latent`: pictures with two-sided attributes, their generators, classifiers with known biases."""
