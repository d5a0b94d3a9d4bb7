"""The README.md of an exported folder of images: what it holds, where the images lie, and how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from c2b_ray.report import words
from c2b_ray.report.formats.images import Counted, RunImages

MOST_FINDINGS = 100


def readme(images: RunImages, counts: Counted, loading: str, front: Mapping[str, Any] | None = None) -> bytes:
    """Returns the file. `loading`: Markdown about reading the folder. `front`: YAML for a hub's pages."""
    findings = [f"- `{finding.tag}`: {_line(finding.sentence)}" for finding in images.findings[:MOST_FINDINGS]]
    if len(images.findings) > MOST_FINDINGS:
        findings.append(f"- And {words.count(len(images.findings) - MOST_FINDINGS)} more, in the run's report.")
    parts = [
        f"# {images.title}",
        f"{words.plural(counts.images, 'image')} of the run `{images.about.get('run_id')}` of c2b-ray. "
        f"{_place(counts)}",
        "They were selected by their failures or findings: shares among them say nothing of how often a classifier "
        "fails.",
        "## Findings",
        "\n".join(findings) or "The run has no findings.",
        "An image has the tag of each finding that it is part of.",
        "## Loading it",
        loading.strip(),
        "## How it came about",
        f"```yaml\n{yaml.safe_dump(dict(images.about), sort_keys=False, allow_unicode=True, width=120)}```",
    ]
    head = f"---\n{yaml.safe_dump(dict(front), sort_keys=False, allow_unicode=True, width=120)}---\n\n" if front else ""
    return (head + "\n\n".join(parts) + "\n").encode()


def _place(counts: Counted) -> str:
    if counts.copied == counts.images:
        return "Their files are copies, inside this folder."
    if not counts.copied:
        return "Their files lie where the run read them, and are not copied."
    n_copied = words.count(counts.copied)
    return f"The files of {n_copied} are copies, inside this folder; the others lie where the run read them."


def _line(text: str) -> str:
    return " ".join(text.split())
