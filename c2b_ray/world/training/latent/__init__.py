"""Small generators and classifiers for searches of latent directions: training and quality."""
