"""The audit `latent`: which unknown direction of a generator's latent space moves the classifier's answer?"""
