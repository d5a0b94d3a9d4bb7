"""The client follows a job whose stream breaks off now and then, waits for a busy endpoint, and gives up in time."""

import httpx
import pytest
import tenacity

from c2b_ray.client import Endpoint, endpoint
from c2b_ray.client.http import BusyError, UnreachableError


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


def submitted(monkeypatch, retry_after):
    """Submits to an endpoint that denies the first request; returns how often it was asked, and the seconds waited."""
    asked, waited = [], []
    monkeypatch.setattr(tenacity.nap.time, "sleep", waited.append)
    denial = httpx.Response(429, json={"detail": "2 jobs wait or run"}, headers={"Retry-After": str(retry_after)})

    def answer(request):
        asked.append(request)
        return denial if len(asked) == 1 else httpx.Response(202, json={"id": "job_1"})

    with Endpoint("http://audits.example.org", "c2b_key", transport=httpx.MockTransport(answer)) as client:
        try:
            client.submit("c2b", {})
        except BusyError:
            return len(asked), sum(waited), "refused"
    return len(asked), sum(waited), "submitted"


def test_a_quota_of_the_day_is_told_at_once_and_a_short_wait_with_its_reason(monkeypatch, caplog):
    assert submitted(monkeypatch, retry_after=50_000) == (1, 0, "refused")
    assert caplog.text == ""
    asked, waited, end = submitted(monkeypatch, retry_after=30)
    assert (asked, end) == (2, "submitted")
    assert waited >= 30
    assert "2 jobs wait or run; sent again in 3" in caplog.text
