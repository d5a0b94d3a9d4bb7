"""What a user may write in an audit file, read and checked once, at the edge.

It knows fields and their limits, not what an audit does with them. `read_audit` gives what audits work on: paths
absolute, no default left open.
"""

from c2b_ray.config.audit import AuditConfig, Right
from c2b_ray.config.reading import read_audit

__all__ = ["AuditConfig", "Right", "read_audit"]
