"""Writes each overlay's serve.yaml, the RayService's serveConfigV2, from the Serve configs in deployments/.

    python k8s/serve_config.py            writes them anew
    python k8s/serve_config.py --check    says which are not in step, exit status 1 where one is

An overlay of your own: copy one, name your file of deployments/ in the first line of its serve.yaml, and run this.

Two fields differ in a pod: Serve listens on all addresses, for the operator asks for its health from its own pod, and
on every node with a replica, for Kubernetes' service points at all of them.
"""

from __future__ import annotations

import argparse
import sys

from checks.serve import ROOT, patch, sources


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a file is not in step")
    check, stale = parser.parse_args().check, []
    for overlay, source in sources().items():
        file = ROOT / "k8s" / "overlays" / overlay / "serve.yaml"
        if not (ROOT / "deployments" / f"{source}.yaml").is_file():
            parser.error(f"{file.relative_to(ROOT)} is made from deployments/{source}.yaml, which is not there")
        if file.is_file() and file.read_text(encoding="utf-8") == patch(source):
            continue
        stale.append(str(file.relative_to(ROOT)))
        if not check:
            file.write_text(patch(source), encoding="utf-8")
    for name in stale:
        print(f"{name}: {'not in step with deployments/; run python k8s/serve_config.py' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
