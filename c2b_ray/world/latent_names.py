"""The names of the shipped models of the latent world; imports no library."""

WORLD = "sprites"
GENERATORS = tuple(
    f"latent-{WORLD}-{kind}" for kind in ("vae", "beta", "beta-tc", "dip-i", "dip-ii", "gan-hessian", "style", "known")
)
READERS = tuple(f"latent-{WORLD}-reader{number}" for number in ("", "-2", "-3"))
"""Networks that name the sides of pictures, trained independently: where they disagree, a picture has no label."""
CLASSIFIERS = tuple(
    f"latent-{WORLD}-{about}"
    for about in ("x-colour", "colour-scale", "scale-background", "x-unbiased", "colour-unbiased")
)
"""Classifiers of TARGET: TARGET-BIASED learned with a skew of 0.9, TARGET-unbiased with none."""
