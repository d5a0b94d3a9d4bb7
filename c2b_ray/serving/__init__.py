"""Models behind Ray Serve: one file per deployment, handles that are roles, and the apps that configurations name."""

from c2b_ray.extras import needed_by

# Here, so that importing any part of the package says what to install.
with needed_by("Ray Serve", install="'c2b-ray[serve]'"):
    import ray.serve  # noqa: F401
