"""A run's images in the formats of other tools: folders for FiftyOne, Label Studio, COCO and Hugging Face, and CSV.

The run's audit declares how its images are read (`audits.audit.Audit.images`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType

from c2b_ray.audits.audit import audit_of
from c2b_ray.errors import Argument, ConfigError, RunError, nearest
from c2b_ray.report.formats import coco, fiftyone, huggingface, label_studio
from c2b_ray.report.formats.folder import Folder, destination
from c2b_ray.report.formats.images import Counted, RunImages, images_csv
from c2b_ray.storage.run import Run, load_run

FORMATS: Mapping[str, Callable[[RunImages, Folder], Counted]] = MappingProxyType(
    {
        "fiftyone": fiftyone.write,
        "label-studio": label_studio.write,
        "coco": coco.write,
        "huggingface": huggingface.write,
    }
)
"""A format that is a folder → what writes it."""


def run_images(run: str | Path | Run, classifier: str | None = None) -> RunImages:
    """Returns a run's images: of failures where there are classifiers. Raises ConfigError for a kind without images."""
    loaded = run if isinstance(run, Run) else load_run(run)
    declared = audit_of(loaded).images
    if not declared:
        raise ConfigError(Argument.RUN, f"{loaded.path} is a run of {loaded.kind.command}, which holds no images")
    images: RunImages = resolve_name(declared)(loaded, classifier)
    return images


def export_images(run: str | Path | Run, form: str, out: str | Path, classifier: str | None = None) -> Counted:
    """Writes a run's images into the folder `out`, a path or URI, which appears whole; returns how many they are.

    Images that lie as files below a labelled table's folder stay there, and are named by their place; others are copied
    (`huggingface` holds all bytes). Raises ConfigError for an unknown format or classifier, RunError where `out` holds
    files, or the run no image.
    """
    if form not in FORMATS:
        raise ConfigError(Argument.FORMAT, f"there is no format {form!r}; {nearest(form, FORMATS)}")
    loaded = run if isinstance(run, Run) else load_run(run)
    images = run_images(loaded, classifier)
    identity = {"run": loaded.manifest["run_id"], "format": form, "classifier": classifier, "version": 1}
    if next(images.rows(), None) is None:
        raise RunError(f"{loaded.path}: no image to export: nothing failed, or the images are gone", run=loaded.path)
    with destination(str(out), identity) as folder:
        return FORMATS[form](images, folder)


def images_as_csv(run: Run, classifier: str | None) -> bytes:
    """Returns a run's images as CSV, without their bytes (`report.formats.images.COLUMNS`)."""
    return images_csv(run_images(run, classifier))
