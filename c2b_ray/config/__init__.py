"""Config files, read and checked once, at the edge.

It knows fields and their limits, not what an audit does with them. `read_audit` returns a complete config: paths are
absolute, and all defaults are filled in.
"""

from c2b_ray.config.audit import AuditConfig, Right
from c2b_ray.config.reading import read_audit

__all__ = ["AuditConfig", "Right", "read_audit"]
