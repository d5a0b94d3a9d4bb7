"""What is sent again to an object store, and what is not."""

import pytest

from c2b_ray.errors import StorageError
from c2b_ray.storage import s3
from c2b_ray.storage.s3 import patiently

BUSY = OSError("AWS Error SLOW_DOWN during PutObject operation: less")
CUT = OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 18, Transferred a partial file")
NO_SERVER = OSError("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7, Couldn't connect to server")
DENIED = OSError("AWS Error ACCESS_DENIED during PutObject operation: Access Denied")


class Server:
    """Fails so often, then answers."""

    def __init__(self, error, times):
        self.error, self.times, self.calls = error, times, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "done"


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(s3, "FIRST_PAUSE_S", 0.001)


@pytest.mark.parametrize("error", [BUSY, CUT])
def test_what_passes_is_sent_again(error):
    server = Server(error, 6)
    assert patiently("s3://bucket/x", server) == "done"
    assert server.calls == 7


@pytest.mark.parametrize("error", [DENIED, NO_SERVER, OSError(28, "No space left"), StorageError("no")])
def test_what_does_not_pass_is_told_at_once(error):
    server = Server(error, 1)
    with pytest.raises(type(error)) as raised:
        patiently("s3://bucket/x", server)
    assert (raised.value, server.calls) == (error, 1)


def test_a_server_that_was_there_is_waited_for():
    assert patiently("s3://bucket/x", Server(NO_SERVER, 3), reached=True) == "done"


def test_a_disk_is_not():
    server = Server(BUSY, 1)
    with pytest.raises(OSError, match="SLOW_DOWN"):
        patiently("/data/x", server)
    assert server.calls == 1


def test_it_ends_at_the_timeout_with_the_last_error(monkeypatch):
    monkeypatch.setenv("C2B_S3_TIMEOUT", "0.5")
    server = Server(BUSY, 10**6)
    with pytest.raises(OSError, match="SLOW_DOWN"):
        patiently("s3://bucket/x", server)
    assert 2 < server.calls < 20
