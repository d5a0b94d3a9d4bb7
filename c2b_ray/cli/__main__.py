"""`python -m c2b_ray.cli` is `c2b`."""

from c2b_ray.cli import command

command()
