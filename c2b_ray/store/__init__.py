"""Run directories, datasets and exports: all reading and writing of results, on disks and object stores."""

from c2b_ray.store.run import Run, load_run

__all__ = ["Run", "load_run"]
