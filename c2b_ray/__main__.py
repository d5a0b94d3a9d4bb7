"""`python -m c2b_ray`: the command `c2b`, where its script is not on the path."""

from c2b_ray.cli import command

if __name__ == "__main__":
    command()
