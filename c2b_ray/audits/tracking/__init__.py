"""Logs finished runs to experiment trackers: MLflow and Weights & Biases.

>>> run = c2b_ray.audit("audit.yaml")
>>> c2b_ray.log(run, "mlflow:http://tracking:5000|classifiers")
>>> c2b_ray.log(run, "wandb:vision/classifiers")

A run is logged once, under its id: logged again, with the checks of gates say, it is the same run of the tracker.
"""

from __future__ import annotations

from c2b_ray.audits.tracking.record import Tracker, log, tracker

__all__ = ["Tracker", "log", "tracker"]
