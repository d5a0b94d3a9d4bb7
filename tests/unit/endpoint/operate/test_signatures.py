"""Signed URLs: of one path, one tenant and some minutes."""

import pytest

from c2b_ray.endpoint.operate.webhooks import UrlSigner

PATH = "/v1/audits/job_1/report"


def signature_of(url):
    return url.partition("?signature=")[2]


def test_a_signature_opens_its_path_until_it_expires():
    clock = [1000.0]
    signer = UrlSigner(b"secret", lambda: clock[0])
    url, expires = signer.url(PATH, "tenant_a", 60)
    assert (expires, url.partition("?")[0]) == (1060, PATH)
    signature = signature_of(url)
    assert signer.tenant(PATH, signature) == "tenant_a"
    clock[0] = 1060.0
    assert signer.tenant(PATH, signature) is None


def test_a_signature_lives_no_longer_because_the_clock_was_set_back():
    clock = [100_000.0]
    signer = UrlSigner(b"secret", lambda: clock[0], longest=60)
    signature = signature_of(signer.url(PATH, "tenant_a", 60)[0])
    clock[0] = 100_000.0 - 30  # another replica's clock
    assert signer.tenant(PATH, signature) == "tenant_a"
    clock[0] = 100_000.0 - 3600
    assert signer.tenant(PATH, signature) is None


def test_nothing_of_a_signature_can_be_changed():
    signer = UrlSigner(b"secret", lambda: 1000.0)
    signature = signature_of(signer.url(PATH, "tenant_a", 60)[0])
    later = signature.replace("1060.", "9060.")
    assert signer.tenant(PATH, later) is None
    assert signer.tenant(PATH, signature.replace("tenant_a", "tenant_b")) is None
    assert signer.tenant("/v1/audits/job_2/report", signature) is None
    assert UrlSigner(b"other", lambda: 1000.0).tenant(PATH, signature) is None


@pytest.mark.parametrize(
    "text", ["", "1", "1.a.b", "9" * 13 + ".a." + "b" * 43, "\u0661.a." + "b" * 43, "1.a." + "\x00" * 43]
)
def test_what_is_no_signature_opens_nothing(text):
    assert UrlSigner(b"secret").tenant(PATH, text) is None
