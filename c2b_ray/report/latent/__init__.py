"""Pages about searches of a latent space."""
