"""An httpx transport that sends only requests that a `UrlPolicy` allows, to checked addresses.

Each request, and so each redirect, is checked separately. A name is resolved once for a connection, and the connection
is made to a checked address, so a name that resolves to another address a moment later gains nothing. TLS and the Host
header still name the host. The size and the total time of an answer are limited, however slowly it arrives. The
transport follows no redirect and reads no proxy from the environment.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import httpcore
import httpx

from c2b_ray.errors import AddressError
from c2b_ray.models.url_guard import Target, UrlPolicy, check_url, checked_addresses, parse_url

Resolver = Callable[[str, int], Sequence[str]]
"""Resolves a host's name and a port to addresses."""


def resolved(host: str, port: int) -> list[str]:
    """Resolves a name by the operating system. Raises OSError where it cannot."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


class GuardedTransport(httpx.HTTPTransport):
    """An httpx transport that is limited by a `UrlPolicy`.

    Raises AddressError for a request that is not allowed, and httpx's errors for failed ones. Safe to use from several
    threads. `context`: the TLS context, by default with httpx's trusted certificates. `bodies`: False if only the
    status and the location of a redirect are wanted; the rest of an answer is then neither checked nor read.
    """

    def __init__(
        self,
        policy: UrlPolicy,
        *,
        resolver: Resolver = resolved,
        connections: int = 10,
        context: ssl.SSLContext | None = None,
        bodies: bool = True,
    ) -> None:
        context = httpx.create_ssl_context(trust_env=False) if context is None else context
        super().__init__(verify=context, trust_env=False)
        self._policy, self._clock, self._bodies = policy, _Clock(), bodies
        # httpx has no parameter for how a connection is made; httpcore, which it is built on, has.
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=connections,
            network_backend=_Guarded(policy, resolver, self._clock),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        check_url(str(request.url), self._policy)
        _check_headers(request)
        # A few bytes may unpack to a million times as many.
        request.headers["Accept-Encoding"] = "identity"
        end = self._clock.begin(self._policy.seconds)
        response = super().handle_request(request)
        if not self._bodies:
            response.close()
            kept = {name: value for name, value in response.headers.items() if name == "location"}
            return httpx.Response(response.status_code, headers=kept)
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        length = response.headers.get("content-length", "0")
        too_long = not length.isdecimal() or int(length) > self._policy.max_bytes
        if packed not in ("", "identity") or too_long:
            response.close()
            why = f"is packed ({packed[:40]!r})" if not too_long else "is too long"
            raise AddressError(
                f"{request.url.host}: its answer {why}; expected at most {self._policy.max_bytes} plain bytes"
            )
        return httpx.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream, self._policy.max_bytes, self._clock, end),
            extensions=response.extensions,
        )


def _check_headers(request: httpx.Request) -> None:
    """Checks that the Host header is the URL's: another one would reach other sites behind a shared address."""
    expected = request.url.netloc.decode("ascii")
    if request.headers.get_list("host") != [expected]:
        raise AddressError(f"a request to {expected} names another Host")


class _Clock:
    """The deadline of each thread's request."""

    def __init__(self) -> None:
        self._local = threading.local()

    def begin(self, seconds: float) -> float:
        self.end = time.monotonic() + seconds
        return self.end

    @property
    def end(self) -> float:
        return float(getattr(self._local, "end", 0.0))

    @end.setter
    def end(self, value: float) -> None:
        self._local.end = value

    def left(self, timeout: float | None) -> float:
        """Returns the seconds that one step may take; raises httpcore.ReadTimeout where none is left."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout("the request and its answer took too long")
        return left if timeout is None else min(left, timeout)


class _Counted(httpx.SyncByteStream):
    """The body of an answer, cut off by an AddressError where it is too long."""

    def __init__(self, stream: Any, most: int, clock: _Clock, end: float) -> None:
        self._stream, self._most, self._clock, self._end = stream, most, clock, end

    def __iter__(self) -> Iterator[bytes]:
        self._clock.end = self._end  # another thread may read than sent the request
        size = 0
        for part in self._stream:
            size += len(part)
            if size > self._most:
                raise AddressError(f"an answer of more than {self._most} bytes")
            yield part

    def close(self) -> None:
        self._stream.close()


class _Guarded(httpcore.NetworkBackend):
    """A network backend that connects to checked addresses only."""

    def __init__(self, policy: UrlPolicy, resolver: Resolver, clock: _Clock) -> None:
        self._policy, self._resolver, self._clock = policy, resolver, clock
        self._system = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in self._addresses(host, port):
            try:
                left = self._clock.left(timeout)
                return _Timed(self._system.connect_tcp(address, port, left, local_address, socket_options), self._clock)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise AddressError(f"{path[:100]!r}: sockets of this machine are not allowed")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _addresses(self, host: str, port: int) -> list[str]:
        written = host.strip("[]")
        if ":" in written or written.replace(".", "").isdigit():
            url = f"http://[{written}]:{port}/" if ":" in written else f"http://{written}:{port}/"
            return checked_addresses(parse_url(url), [written], self._policy)
        try:
            answers = self._resolver(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error.strerror or error}") from error
        return checked_addresses(Target("", host, port, "/", None), answers, self._policy)


class _Timed(httpcore.NetworkStream):
    """A connection whose steps end by the deadline of the request."""

    def __init__(self, stream: httpcore.NetworkStream, clock: _Clock) -> None:
        self._stream, self._clock = stream, clock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._clock.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._clock.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._clock.left(timeout))
        return _Timed(stream, self._clock)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
