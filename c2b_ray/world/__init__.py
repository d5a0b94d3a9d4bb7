"""The embedded world: procedural scenes of everyday objects, every attribute of which is known.

Knows scenes, their pictures and their captions; does not know models, training or audits.
"""

from c2b_ray.world.captions import caption
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

__all__ = ["ATTRIBUTES", "CLASSES", "Scene", "caption", "render", "sample"]
