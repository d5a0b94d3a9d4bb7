"""What several rooms of tests share: the command line in this process, and an S3 server over a socket.

There must be no __init__.py here nor below: with one, `import ray` could find the folder tests/ray.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Test modules inherit the tests of these: an assertion that fails there has to say as much as one of their own.
pytest.register_assert_rewrite(*(path.stem for path in Path(__file__).parent.glob("support/*_contract*.py")))
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTS", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests"}
REGION = "eu-central-1"
BUCKET = "photos"


@pytest.fixture
def c2b(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs `c2b ARGUMENTS` as its entry point does; its exit status, what it printed, what it complained of."""
    from c2b_ray import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["c2b", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            cli.main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server in a thread of this process."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Any]:
    """A `postgres.Postgres` of the session's own; tests make databases of theirs in it."""
    import postgres

    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with postgres.running() as server:
        yield server


@pytest.fixture
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Nothing of this machine's own: neither variables nor shared files nor a node's role."""
    import os

    for name in [name for name in os.environ if name.startswith(("AWS_", "C2B_S3"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def s3(s3_server: str, no_aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The environment of a user of the server, and a client of it; the bucket `photos` is there and empty."""
    import boto3

    for name, value in {**KEYS, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name=REGION)
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield client
    client.delete_bucket_policy(Bucket=BUCKET)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for found in page.get("Contents", ()):
            client.delete_object(Bucket=BUCKET, Key=found["Key"])
    client.delete_bucket(Bucket=BUCKET)
