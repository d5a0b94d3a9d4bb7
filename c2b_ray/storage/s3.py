"""Access to S3: keys, region and endpoint from the variables and files that the AWS command line reads.

    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or AWS_PROFILE and the shared files, or the node's role
    AWS_REGION, AWS_DEFAULT_REGION
    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL      another store than Amazon's, such as http://localhost:9000
    C2B_S3_TIMEOUT                             seconds to wait for a store that does not answer, 45

botocore finds them and passes them to pyarrow, whose S3FileSystem(…) does not read the endpoint. A pickled file system
carries its keys to Ray's workers, except those of a node's role, which every node gets itself. This module does not
know what is stored.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs
from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.extras import needed_by
from c2b_ray.storage import passes

SCHEME = "s3://"
TIMEOUT = "C2B_S3_TIMEOUT"
TIMEOUT_S = 45.0
ATTEMPTS = 3
"""The attempts of every request. A pickled file system returns to pyarrow's default, which is the same."""

OF_THE_NODE = ("iam-role", "container-role", "assume-role-with-web-identity")
"""botocore's names of keys that a node gets for itself and that expire: pyarrow finds and renews them."""


def within(uri: str) -> str:
    """Returns `bucket/path` of a URI without keys. Raises SourceError if it has options or no bucket."""
    path = uri.removeprefix(SCHEME)
    if "?" in path:
        raise SourceError(
            f"{uri.partition('?')[0]}: an s3:// URI takes no options; set AWS_REGION and AWS_ENDPOINT_URL_S3 instead"
        )
    if not path.partition("/")[0]:
        raise SourceError(f"{uri}: names no bucket; expected s3://bucket/path")
    return path.rstrip("/")


def bucket_of(uri: str) -> str:
    return within(uri).partition("/")[0]


def key_of(uri: str) -> str:
    return within(uri).partition("/")[2]


def timeout() -> float:
    """Returns the seconds until a request is given up, over all attempts."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else TIMEOUT_S
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(TIMEOUT, f"{text!r}: expected a number of seconds above 0")
    return seconds


def endpoint_name() -> str:
    """Returns the endpoint for messages, without user name and password."""
    endpoint, region = _endpoint()
    if endpoint is None:
        return f"Amazon S3 in {region}"
    split = urlsplit(endpoint)
    return f"{split.scheme}://{split.hostname}{f':{split.port}' if split.port else ''}{split.path}"


def ports() -> list[int]:
    """Returns the TCP ports that access to the store needs: its own, 53 for long DNS answers, and 80 if the node's
    metadata service provides the keys."""
    endpoint, _ = _endpoint()
    split = urlsplit(endpoint) if endpoint else None
    store_port = 443 if split is None else split.port or (80 if split.scheme == "http" else 443)
    return [store_port, 53, *([80] if _from_the_node() else [])]


def has_credentials() -> bool:
    return _session(_session_key()).get_credentials() is not None


def without_secrets(text: str) -> str:
    for secret in _keys():
        if secret:
            text = text.replace(secret, "…")
    return text


def file_system() -> fs.S3FileSystem:
    """Returns the file system for the current environment; the same object, with its connections, while that is
    unchanged."""
    return _file_system(_keys(), *_endpoint(), timeout() / ATTEMPTS)


def refusals() -> tuple[type[Exception], ...]:
    """Returns the errors that calls of `client` raise if the store refuses or cannot be reached."""
    from botocore.exceptions import BotoCoreError, ClientError

    return ClientError, BotoCoreError


def client() -> Any:
    """Returns boto3's client of the same store, for conditional writes, which pyarrow lacks."""
    return _client(_session_key(), *_endpoint(), timeout() / ATTEMPTS)


@lru_cache(maxsize=4)
def _file_system(
    keys: tuple[str | None, str | None, str | None], endpoint: str | None, region: str, seconds: float
) -> fs.S3FileSystem:
    access_key, secret_key, session_token = keys
    split = urlsplit(endpoint) if endpoint else None
    return fs.S3FileSystem(
        access_key=access_key,
        secret_key=secret_key,
        session_token=session_token,
        anonymous=access_key is None and not _from_the_node(),
        region=region,
        scheme=split.scheme if split else None,
        endpoint_override=split.netloc + split.path.rstrip("/") if split else None,
        connect_timeout=seconds,
        request_timeout=max(1.0, seconds),  # on Linux: the longest time without a byte, in whole seconds
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,  # one put for a small file, not the three requests of an upload in parts
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
    )


@lru_cache(maxsize=4)
def _client(session: tuple[str, ...], endpoint: str | None, region: str, seconds: float) -> Any:
    from botocore.config import Config

    config = Config(
        connect_timeout=seconds,
        read_timeout=seconds,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
        s3={"addressing_style": "path" if endpoint else "auto"},
        request_checksum_calculation="when_required",  # other stores support fewer checksums than Amazon's
        response_checksum_validation="when_required",
    )
    return _session(session).client("s3", endpoint_url=endpoint, region_name=region, config=config)


def _endpoint() -> tuple[str | None, str]:
    """Returns the endpoint, None for Amazon's, and the region."""
    session = _session(_session_key())
    from botocore.configprovider import ConfiguredEndpointProvider

    core = session._session
    endpoint: str | None = None
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        provider = ConfiguredEndpointProvider(
            full_config=core.full_config, scoped_config=core.get_scoped_config(), client_name="s3"
        )
        endpoint = provider.provide() or None
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigError(
            "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL", "expected http://host:port or https://host, scheme included"
        )
    # botocore reads only AWS_DEFAULT_REGION and the shared file; without a region, pyarrow queries the node's metadata.
    return endpoint, os.environ.get("AWS_REGION") or session.region_name or "us-east-1"


def _keys() -> tuple[str | None, str | None, str | None]:
    """Returns key id, secret and token; None for each if there are none or the node provides them."""
    credentials = _session(_session_key()).get_credentials()
    if credentials is None or credentials.method in OF_THE_NODE:
        return None, None, None
    try:
        frozen = credentials.get_frozen_credentials()  # renews those that expire
    except refusals() as error:
        raise ConfigError("AWS_PROFILE", f"its keys are not available: {error}; sign in again") from error
    return frozen.access_key, frozen.secret_key, frozen.token


def _from_the_node() -> bool:
    credentials = _session(_session_key()).get_credentials()
    return credentials is not None and credentials.method in OF_THE_NODE


def _session_key() -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("AWS_"))


@lru_cache(maxsize=4)
def _session(environment: tuple[str, ...]) -> Any:
    """Returns botocore's view of the environment, which is new if the environment has changed. All access to S3 uses
    it."""
    with needed_by("s3://", SourceError):
        import boto3
    try:
        session = boto3.session.Session()
        session.get_credentials()
    except refusals() as error:
        raise ConfigError("AWS_PROFILE", f"{error}") from error
    return session


# Repeats requests to an object store that is busy, or whose connections break, until `C2B_S3_TIMEOUT` has passed.


T = TypeVar("T")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0


def patiently(location: str | Path, call: Callable[[], T], reached: bool = False) -> T:
    """Returns the result of `call`, which is repeated while the S3 store of `location` is busy. Raises its last error.

    `reached`: the store has answered before, so failures to connect are repeated, too. Otherwise they are errors at
    once, because the endpoint may be wrong.
    """
    if not str(location).startswith(SCHEME):
        return call()
    refused: tuple[type[Exception], ...] = (OSError, *refusals())
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, refused) and passes(error, reached)),
        wait=wait_random_exponential(FIRST_PAUSE_S, LONGEST_PAUSE_S),  # writers refused together retry apart
        stop=stop_before_delay(timeout()),
        reraise=True,
    )
    return retrying(call)


def removed(location: str | Path, remove: Callable[[], None]) -> None:
    """Calls `remove` by `patiently`. An object missing at a repetition was removed by a call whose answer was lost."""
    again = False

    def attempt() -> None:
        nonlocal again
        try:
            remove()
        except FileNotFoundError:
            if not again:
                raise
        finally:
            again = True

    patiently(location, attempt)


def open_input(filesystem: fs.FileSystem, path: str) -> pa.NativeFile:
    """Opens a file to read at any place of it. Opening and reading are patient where it is an object of S3."""
    if not isinstance(filesystem, fs.S3FileSystem):
        return filesystem.open_input_file(path)
    uri = SCHEME + path
    return pa.PythonFile(_Object(uri, patiently(uri, lambda: filesystem.open_input_file(path))), "r")


def file_info(filesystem: fs.FileSystem, paths: str | list[str] | fs.FileSelector) -> Any:
    """Returns what `filesystem.get_file_info` does, patiently."""
    location = SCHEME if isinstance(filesystem, fs.S3FileSystem) else ""
    return patiently(location, lambda: filesystem.get_file_info(paths))


class _Object:
    """A file of a store whose reads are repeated; Python's protocol of a file, as far as `pyarrow.PythonFile` needs it.

    Each read says where it begins: after a failure, the stream's own position is unknown.
    """

    def __init__(self, uri: str, stream: pa.NativeFile) -> None:
        self._uri, self._stream, self._size, self._at = uri, stream, stream.size(), 0

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def close(self) -> None:
        self._stream.close()

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, most: int = -1) -> bytes:
        remaining = max(0, self._size - self._at)
        size = remaining if most < 0 else min(most, remaining)
        data = patiently(self._uri, lambda: self._stream.read_at(size, self._at), reached=True) if size else b""
        self._at += len(data)
        return bytes(data)
