#!/usr/bin/env bash
# An environment in which vLLM runs without a GPU, in .venv-vllm of this checkout (or in the folder given): for a replica's
# `py_executable`. Its Python must be the cluster's, to the same patch release. A second call finds it installed.
#
# Packages come from wherever pip is configured to look; torch==2.13.0+cpu is in PyTorch's own index of CPU builds, which
# PIP_EXTRA_INDEX_URL can name. Without their dependencies, which requirements.txt lists all but torchvision, torchaudio,
# torchcodec and triton: these do not import beside a CPU build of torch, or take a gigabyte. No language model needs them;
# some captioners do, and deployments/README.md names others.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
venv=${1:-$root/.venv-vllm}
stamp=$venv/.installed
if [ "$stamp" -nt "$here/requirements.txt" ] && [ "$stamp" -nt "$here/install.sh" ]; then exit 0; fi
test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip --quiet --quiet --disable-pip-version-check)
"${pip[@]}" install --no-deps --requirement "$here/requirements.txt"
"${pip[@]}" install --no-deps --editable "$root"
touch "$stamp"
