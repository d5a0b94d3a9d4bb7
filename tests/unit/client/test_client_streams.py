"""The client follows a job whose stream breaks off now and then, and gives up where nobody answers."""

import httpx
import pytest

from c2b_ray.client import Endpoint, endpoint
from c2b_ray.client.http import UnreachableError


class Broken(httpx.SyncByteStream):
    """A sign of life, and after a while the end of the connection."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def __iter__(self):
        yield b": ping\n\n"
        self.clock.now += self.seconds
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def followed(monkeypatch, breaks, seconds):
    """Follows a job whose stream breaks `breaks` times, each after so many seconds."""
    clock, streams = Clock(), []
    monkeypatch.setattr(endpoint, "time", clock)

    def answer(request):
        streams.append(request.url.path)
        return httpx.Response(200, stream=Broken(clock, seconds)) if len(streams) <= breaks else httpx.Response(204)

    with Endpoint("http://audits.example.org", "c2b_key", transport=httpx.MockTransport(answer)) as client:
        return list(client.events("job_1")), len(streams)


def test_a_job_that_waits_for_hours_behind_a_proxy_with_a_limit_is_followed(monkeypatch):
    assert followed(monkeypatch, breaks=40, seconds=300.0) == ([], 41)


def test_a_stream_that_breaks_off_at_once_each_time_is_given_up(monkeypatch):
    with pytest.raises(UnreachableError, match="peer closed"):
        followed(monkeypatch, breaks=40, seconds=0.1)
