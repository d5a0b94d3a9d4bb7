"""Resolves paths and URIs to pyarrow file systems, and translates a store's refusals to errors.

It knows addresses, not what is read or written there. `s3` knows the access to S3.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

from c2b_ray.errors import SourceError
from c2b_ray.text import HARMLESS, TOKEN

THREADS = 16
"""Files that are read at the same time: reads wait for disks and networks, not for cores."""
URL_POLICY = "C2B_URL_POLICY"
"""The variable with the URLs that models of this process may call (`models.url_guard`); any URL if it is not set."""
ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_CA_BUNDLE", "AWS_EC2_METADATA_DISABLED", "C2B_S3_TIMEOUT",
    "C2B_READ_TIMEOUT", URL_POLICY,
)  # fmt: skip
"""The variables for the access to a store, and for the URLs that may be called. Other processes need the same ones."""

_KEY_IN_QUERY = re.compile(
    r"(?i)[?&;#]([\w-]*(key|token|secret|passwd|password|credential|signature|authorization|auth)|sig|pwd|code)=[^&;\s]"
)
_QUERY_VALUE = re.compile(r"[?&;]([^=&;#\s]+)=([^&;#\s]+)")
_KEY_LIKE = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w.~%+/=-]{16,}")

_PROCESS = uuid.uuid4().hex

MISSING = {"NO_SUCH_BUCKET", "NoSuchBucket"}
CREDENTIALS = {
    "INVALID_ACCESS_KEY_ID", "InvalidAccessKeyId", "INVALID_CLIENT_TOKEN_ID", "InvalidClientTokenId",
    "SIGNATURE_DOES_NOT_MATCH", "SignatureDoesNotMatch", "UNRECOGNIZED_CLIENT", "UnrecognizedClient",
    "INVALID_SIGNATURE", "InvalidSignature", "ExpiredToken", "EXPIRED_TOKEN", "InvalidToken", "INVALID_TOKEN",
    "TokenRefreshRequired", "MISSING_AUTHENTICATION_TOKEN", "NoCredentialsError", "CredentialRetrievalError",
    "REQUEST_EXPIRED", "RequestTimeTooSkewed", "REQUEST_TIME_TOO_SKEWED",
}  # fmt: skip
FORBIDDEN = {"ACCESS_DENIED", "AccessDenied", "403", "ALL_ACCESS_DISABLED", "AllAccessDisabled"}
BUSY = {
    "SLOW_DOWN", "SlowDown", "THROTTLING", "Throttling", "SERVICE_UNAVAILABLE", "ServiceUnavailable", "503",
    "INTERNAL_FAILURE", "InternalError", "500", "REQUEST_TIMEOUT", "RequestTimeout", "ConditionalRequestConflict",
}  # fmt: skip
ELSEWHERE = {"301", "PermanentRedirect", "AuthorizationHeaderMalformed", "AUTHORIZATION_HEADER_MALFORMED"}
SILENT = {"28", "ReadTimeoutError", "ConnectTimeoutError"}
UNREACHABLE = {
    "NETWORK_CONNECTION", "EndpointConnectionError", "ConnectionClosedError", "SSLError", "ProxyConnectionError",
}  # fmt: skip
"""Error codes by what to do about them: pyarrow's (capitals; curl's are numbers), then botocore's."""
BROKEN = {"16", "18", "52", "55", "56", "92"}
"""curl's numbers of connections that broke off: unlike failures to connect, they show that the server is right."""


def resolve(location: str | Path) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a path or URI (`s3://bucket/run`), and the path within it. Raises SourceError for an
    invalid address."""
    text = str(location)
    refuse_keys(text)
    if text.startswith("s3://"):
        from c2b_ray.storage import s3

        return s3.file_system(), s3.within(text)
    if text.startswith("s3:/"):
        raise SourceError(f"{text}: expected s3://bucket/path; as a Path it has lost a slash, pass it as a string")
    if scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", text):  # one slash: a Path drops the second slash of a URI
        raise SourceError(
            f"{text}: {scheme[1]}:// is not read or written here; expected a local path or s3://bucket/path: copy it "
            "to one of these first",
            location=text,
        )
    if "\0" in text:
        raise SourceError(f"{text!r} is not a path: it contains a NUL character", location=text)
    return fs.LocalFileSystem(), str(Path(text).expanduser().absolute())


def refuse_keys(text: str) -> None:
    """Raises SourceError if `text` contains a URL with keys, which would be stored in manifests and logs.

    The message contains no part of the text.
    """
    if re.search(r"(?i)s3://[^/?]*[@:]", text):
        raise SourceError(
            "an s3:// URI with keys in it is refused, because it would be stored in manifests and logs; write "
            "s3://bucket/path and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if re.search(r"://[^/?#\s]*@", text) or _KEY_IN_QUERY.search(text) or _holds_key(text):
        raise SourceError(
            "a URL with a password or key in it is refused, because it would be stored in manifests and logs; omit it, "
            "and set C2B_HTTP_KEY (http: classifiers) or OPENAI_API_KEY (openai: models)"
        )


def _holds_key(text: str) -> bool:
    """Returns whether a URL in `text` has a value that looks like a key, under any parameter's name."""
    if not re.search(r"(?i)https?://", text):
        return False
    values = (value for name, value in _QUERY_VALUE.findall(text) if name.lower() not in HARMLESS)
    return TOKEN.search(text) is not None or any(map(_KEY_LIKE.fullmatch, values))


def is_remote(location: str | Path) -> bool:
    return not isinstance(resolve(location)[0], fs.LocalFileSystem)


@dataclass(frozen=True)
class Stores:
    """The variables by which this process reaches stores. Unpickling it sets them in the other process."""

    process: str = _PROCESS
    variables: Mapping[str, str] = field(
        default_factory=lambda: {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}, repr=False
    )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.process != _PROCESS:
            os.environ.update(self.variables)


def refusal(location: str | Path, error: BaseException) -> str | None:
    """Explains what an S3 store refused and what to do, without secrets; None if the error is not a store's.

    It does not cover missing objects: pyarrow raises FileNotFoundError for those, and for buckets (`absent_bucket`).
    """
    code = _code(error)
    if code is None or not str(location).startswith("s3://"):
        return None
    from c2b_ray.storage import s3

    return f"{location}: {_in_words(code, s3.bucket_of(str(location)), s3.endpoint_name(), error)}"


def _in_words(code: str, bucket: str, endpoint: str, error: BaseException) -> str:
    from c2b_ray.storage import s3

    if code in MISSING:
        return _no_bucket(bucket, endpoint)
    if code in CREDENTIALS or (code in FORBIDDEN and not s3.has_credentials()):
        return (
            f"{endpoint} does not accept the credentials for bucket {bucket!r} ({code}); set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or AWS_PROFILE, to valid ones"
        )
    if code in FORBIDDEN:
        return (
            f"{endpoint} forbids this in bucket {bucket!r} ({code}); check that the keys "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE) are right, and that they may list and read "
            "there and, for what is written, put and delete"
        )
    if code in ELSEWHERE:
        return f"bucket {bucket!r} is in another region ({code}); set AWS_REGION to the bucket's"
    if code in BUSY:
        return (
            f"{endpoint} is overloaded or failing ({code}) for bucket {bucket!r}; run the same command "
            "again later; it resumes"
        )
    if code in SILENT:
        return (
            f"{endpoint} gave no answer about bucket {bucket!r} within {s3.timeout():g} s; check "
            "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL and the network, or set C2B_S3_TIMEOUT (seconds) higher, and run "
            "the same command again"
        )
    if code in UNREACHABLE:
        return (
            f"{endpoint} with bucket {bucket!r} cannot be reached ({_reason(error)}); check "
            "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_REGION and the network, and run the same command again"
        )
    return f"{endpoint} refused a request to bucket {bucket!r} ({code}): {s3.without_secrets(str(error))}"


def absent_bucket(location: str | Path) -> str | None:
    """Says that a bucket does not exist; None if it does, or if `location` is not on S3.

    For use after a FileNotFoundError: pyarrow does not distinguish a missing bucket from a missing object.
    """
    if not str(location).startswith("s3://"):
        return None
    from c2b_ray.storage import s3

    bucket = s3.bucket_of(str(location))
    try:
        if s3.file_system().get_file_info(bucket).type != fs.FileType.NotFound:
            return None
    except OSError as error:
        return refusal(location, error)
    return f"{location}: {_no_bucket(bucket, s3.endpoint_name())}"


def concerns_the_store(error: BaseException) -> bool:
    """Returns whether an error is about the store as a whole, such as a silent or busy store or unknown keys, so that
    further requests would fail, too. An error about one object is not."""
    return _code(error) in MISSING | CREDENTIALS | ELSEWHERE | BUSY | SILENT | UNREACHABLE


def passes(error: BaseException, reached: bool = False) -> bool:
    """Returns whether the failed request may soon succeed: the store is busy, or the connection broke.

    `reached`: count failures to connect, too, because the store has answered before; otherwise they mean a wrong
    endpoint.
    """
    code = _code(error)
    if code in BUSY or code in ("ConnectionClosedError", "ResponseStreamingError"):
        return True
    curl = re.search(r"curlCode: (\d+)", str(error))
    return code in UNREACHABLE and (reached or (curl is not None and curl[1] in BROKEN))


def _no_bucket(bucket: str, endpoint: str) -> str:
    return (
        f"there is no bucket {bucket!r} at {endpoint}; check the name, and AWS_ENDPOINT_URL_S3 or "
        "AWS_ENDPOINT_URL, and create the bucket first: c2b-ray creates none"
    )


def _code(error: BaseException) -> str | None:
    """Returns the store's code in an error of pyarrow or botocore; None if there is none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", "unknown"))
    if type(error).__module__.startswith("botocore."):
        return type(error).__name__
    text = str(error)
    if re.search(r"Bucket '.*' not found", text):
        return "NO_SUCH_BUCKET"
    if not (match := re.search(r"AWS Error ([A-Z_0-9]+)", text)):
        return None
    if match[1] == "NETWORK_CONNECTION" and (curl := re.search(r"curlCode: (\d+)", text)):
        return curl[1] if curl[1] == "28" else match[1]
    status = re.search(r"HTTP status (\d+)", text)
    return status[1] if match[1] == "UNKNOWN" and status else match[1]


def _reason(error: BaseException) -> str:
    match = re.search(r"curlCode: \d+, ([^;]+)", str(error))
    return match[1] if match else type(error).__name__
