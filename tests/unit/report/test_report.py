"""The written file: whole, safe to open, small, and sensible when there is nothing to say."""

from __future__ import annotations

import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import conftest  # this folder's: the builder of synthetic runs
import pytest
from PIL import Image

from c2b_ray.report import ranked, write_report
from c2b_ray.report.forest import forest_plot
from c2b_ray.report.page import policy
from c2b_ray.report.thumbnails import thumbnail, thumbnails
from c2b_ray.store.run import Run, open_run
