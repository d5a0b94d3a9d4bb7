"""Run directories and exports: the only door to file systems and object stores."""

from c2b_ray.store.run import Run, load_run

__all__ = ["Run", "load_run"]
