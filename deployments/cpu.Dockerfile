# A node without a GPU, a part of the shared endpoint (c2b endpoint api, dispatcher, runner), or a single command. From the
# root of the repository:
#   docker build -f deployments/cpu.Dockerfile -t c2b-ray:cpu .
FROM python:3.11-slim-bookworm AS base
RUN pip install --no-cache-dir uv==0.13.8
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src

# Gigabytes that change with the lock alone: a stage and a layer of their own.
FROM base AS libraries
COPY requirements.lock pyproject.toml ./
# The lock also holds what tests need: as a constraint it gives versions and hashes to what the package itself needs.
RUN uv venv /opt/c2b \
    && uv pip install --python /opt/c2b/bin/python --require-hashes --constraint requirements.lock -r pyproject.toml \
        --extra all

FROM base AS package
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY deployments deployments
COPY c2b_ray c2b_ray
# What builds the package is of the lock too.
RUN uv venv /opt/c2b \
    && uv pip install --python /opt/c2b/bin/python --no-deps --build-constraint requirements.lock --target /opt/package .

FROM python:3.11-slim-bookworm
# wget: the probes of KubeRay call it.
# Of Debian's own versions only the newest can be installed.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 c2b
COPY --from=libraries /opt/c2b /opt/c2b
COPY --from=package /opt/package /opt/package
COPY deployments/*.yaml /opt/deployments/
ENV PATH=/opt/package/bin:/opt/c2b/bin:$PATH PYTHONPATH=/opt/package \
    RAY_USAGE_STATS_ENABLED=0 PYTHONUNBUFFERED=1
USER 1000
WORKDIR /home/c2b
# Of a node of Ray, which is what runs here unless told otherwise; a worker names its head in RAY_HEAD. For a single
# command, such as c2b audit, docker run takes --no-healthcheck.
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s --retries=3 \
    CMD ["sh", "-c", "ray health-check --address ${RAY_HEAD:-127.0.0.1:6379}"]
CMD ["ray", "start", "--head", "--block"]
