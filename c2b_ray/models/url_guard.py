"""Decides which URLs a process may request: on its policy's allow-list, written plainly, and at public addresses.

`check_url` decides and opens nothing; `GuardedTransport` connects. A URL that a stranger writes can mean more than it
shows: `http://0x7f.1`, `http://[::ffff:10.0.0.1]`, `http://allowed@evil`, a name that resolves to this machine. Only
one way of writing each host is therefore read, everything else is refused.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import httpcore
import httpx

from c2b_ray.errors import AddressError, SourceError
from c2b_ray.storage import URL_POLICY, refuse_keys

LONGEST = 2000
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_URL = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        # IANA's registry of special IPv4 addresses, and Azure's host, which looks public and is not.
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
        # Within the IPv6 addresses of the internet: IETF's own (Teredo too), documentation, 6to4.
        "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
    )
)  # fmt: skip
_INTERNET_V6 = ipaddress.ip_network("2000::/3")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True)
class UrlPolicy:
    """The requests that are allowed.

    `allowed`: URLs below which everything may be requested: `https://host`, `https://host:8443/v1/`,
    `https://*.example.org`, `https://*` (any public host that is named rather than numbered). http: only where an entry
    says so. `networks`: addresses beyond the internet's that a listed host may have, such as `10.2.0.0/16`; the address
    of an entry such as `http://127.0.0.1:8000` needs no network. `max_bytes`: of an answer. `seconds`: of a request
    with its whole answer.
    """

    allowed: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    max_bytes: int = 64 * 2**20
    seconds: float = 120.0


@dataclass(frozen=True)
class Target:
    """A parsed URL. `address`: its host, where it is written as an address."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None


def policy_of_environment() -> UrlPolicy | None:
    """Returns the policy under which this process was started; None where it serves only the user."""
    text = os.environ.get(URL_POLICY)
    if text is None:
        return None
    try:
        fields: dict[str, Any] = json.loads(text)
        allowed, networks = tuple(fields.pop("allowed")), tuple(fields.pop("networks"))
        return UrlPolicy(allowed, networks, **fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise AddressError(f"{URL_POLICY} holds no policy of URLs ({error}); no URL is asked") from error


def as_variable(policy: UrlPolicy) -> str:
    """Encodes the policy as the value of the variable `URL_POLICY` for a new process."""
    return json.dumps(asdict(policy))


def parse_url(url: str) -> Target:
    """Parses a URL. Raises AddressError for everything but a plain http(s) URL without user, fragment or odd ways to
    write its host."""
    if len(url) > LONGEST or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise AddressError(
            f"{url[:100]!a}: no plain URL: at most {LONGEST} printable ASCII characters without spaces or "
            "backslashes; write a name with other letters as xn--…, others in a path as %XX"
        )
    match = _URL.fullmatch(url)
    if match is None:
        raise AddressError(f"{url[:100]!r}: expected https://host/path, in small letters up to the host, without a #")
    try:
        refuse_keys(url)
    except SourceError as error:
        raise AddressError(str(error)) from error
    scheme, authority, path, _ = match.groups()
    host, port = _host_and_port(authority.lower(), url)
    if re.search(r"(?i)(^|/)(\.|%2e){1,2}(/|$)|%2f|%5c|%00", path):
        raise AddressError(f"{url[:100]!r}: a path with '.' or '..' or an encoded slash; write it out")
    address = _written_address(host, url)
    return Target(scheme, host, port or _PORTS[scheme], path or "/", address)


def _host_and_port(authority: str, url: str) -> tuple[str, int | None]:
    match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([1-9]\d{0,4}))?", authority)
    if match is None or int(match[2] or 1) > 65_535:
        raise AddressError(
            f"{url[:100]!r}: expected a host name or address, with a port or without, and neither a user, nor a zone, "
            "nor %XX in it"
        )
    return match[1], int(match[2]) if match[2] else None


def _written_address(host: str, url: str) -> Address | None:
    """Returns the address that the host is written as, in the one accepted form; None for a name."""
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host[1:-1])
        if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            return ipaddress.IPv4Address(host)
    except ValueError as error:
        raise AddressError(f"{url[:100]!r}: {host} is no address as it is usually written: {error}") from error
    if not _NAME.fullmatch(host) or len(host) > 253:
        raise AddressError(f"{url[:100]!r}: {host} is no host name")
    return None


def check_url(url: str, policy: UrlPolicy) -> Target:
    """Parses the URL; raises AddressError where it is not plain or not on the allow-list. The host is not resolved."""
    target = parse_url(url)
    if not any(_is_below(target, entry) for entry in policy.allowed):
        raise AddressError(
            f"{target.scheme}://{target.host}:{target.port} is not among the URLs that this endpoint may ask; its "
            "operator lists them in the policy"
        )
    return target


def _is_below(target: Target, entry: str) -> bool:
    scheme, _, target_text = entry.partition("://")
    authority, slash, path = target_text.partition("/")
    if scheme != target.scheme:
        return False
    name, colon, port = authority.lower().rpartition(":")
    if not colon or not port.isdigit():
        name, port = authority.lower(), str(_PORTS.get(scheme, 0))
    if name.startswith("*"):
        # A number is never meant by a pattern of names.
        host_matches = target.address is None and (name == "*" or target.host.endswith(name[1:]))
    else:
        host_matches = name == target.host
    prefix = f"{slash}{path}".rstrip("/")
    path_matches = target.path == prefix or target.path.startswith(f"{prefix}/")
    return host_matches and str(target.port) == port and path_matches


def is_public(address: Address) -> bool:
    """Tells whether the address is a public one; IPv6 addresses that embed an IPv4 address are not, except NAT64."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:  # what DNS64 makes of a name that has IPv4 alone
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _INTERNET_V6 or address.scope_id is not None:
            return False
    return not any(address in network for network in _NOT_PUBLIC if network.version == address.version)


def checked_addresses(target: Target, addresses: Sequence[str], policy: UrlPolicy) -> list[str]:
    """The addresses of a target that was resolved, each of which may be asked; AddressError where one may not.

    All of them must be fit: of several, a client chooses by itself.
    """
    networks = [ipaddress.ip_network(network) for network in policy.networks]
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError as error:
            raise AddressError(f"{target.host} has the address {text[:60]!r}, which is none") from error
        is_listed = any(address in network for network in networks if network.version == address.version)
        if not (is_listed or address == target.address or is_public(address)):
            raise AddressError(
                f"{target.host} has the address {address}, which is not one of the internet's; where it is a service "
                "of this organisation, its operator lists its network in the policy"
            )
    if not addresses:
        raise AddressError(f"{target.host} has no address")
    return list(addresses)


# An httpx transport that sends only requests that a `UrlPolicy` allows, to checked addresses.


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
            headers = {name: value for name, value in response.headers.items() if name == "location"}
            return httpx.Response(response.status_code, headers=headers)
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        length = response.headers.get("content-length", "0")
        too_long = not length.isdecimal() or int(length) > self._policy.max_bytes
        if packed not in ("", "identity") or too_long:
            response.close()
            problem = f"is packed ({packed[:40]!r})" if not too_long else "is too long"
            raise AddressError(
                f"{request.url.host}: its answer {problem}; expected at most {self._policy.max_bytes} plain bytes"
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
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise httpcore.ReadTimeout("the request and its answer took too long")
        return remaining if timeout is None else min(remaining, timeout)


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
                remaining = self._clock.left(timeout)
                return _Timed(
                    self._system.connect_tcp(address, port, remaining, local_address, socket_options), self._clock
                )
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
