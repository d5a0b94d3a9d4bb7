"""What a stranger can write in place of a host, and the addresses behind an honest name."""

import ipaddress

import pytest

from c2b_ray.errors import AddressError
from c2b_ray.models.url_guard import Target, UrlPolicy, check_url, checked_addresses, is_public, parse_url

ANY = UrlPolicy(("https://*", "http://127.0.0.1:8000", "https://models.example.org:8443/v1/", "https://*.corp.example"))

ODD = [
    "http://2130706433/", "http://0x7f.0.0.1/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/",
    "http://0/",
    "http://127.0.0.1./", "http://127.0.0.01/", "https://①②⑦.0.0.1/", "https://127。0。0。1/", "https://１２７.0.0.1/",
    "https://[::ffff:127.0.0.1%25lo]/", "https://[fe80::1%25eth0]/", "https://exam%70le.org/",
    "https://example.org./",
    "https://user@example.org/", "https://user:secret@example.org/", "https://example.org@169.254.169.254/",
    "https://example.org\\@127.0.0.1/", "https://example.org\r\nHost: evil/", "https:///etc/passwd", "https://",
    "file:///etc/passwd", "ftp://example.org/", "gopher://127.0.0.1:6379/_", "HTTPS://example.org/", "//example.org/",
    "https:example.org", "https://example.org:99999/", "https://example.org:0/", "https://example.org:8O/",
    "https://example.org/#@127.0.0.1", "https://exa mple.org/", "https://example..org/", "https://-example.org/",
    "https://example.org/v1/../admin", "https://example.org/%2e%2e/admin", "https://example.org/a%2fb",
    "https://еxample.org",
    "https://example.org/?api_key=abcdefgh12345678", "https://example.org/" + "a" * 3000, "https://[::1",
    "https://[]/",
    "jar:https://example.org!/", "data:text/html,x", "https://0x7f.1/", "https://127.0.0.1.0x1/", "https://1.2.3/",
]  # fmt: skip


@pytest.mark.parametrize("url", ODD)
def test_only_plain_urls_are_read(url):
    with pytest.raises(AddressError):
        parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8001/", "http://127.0.0.2:8000/", "http://localhost:8000/", "https://127.0.0.1/",
        "https://models.example.org:8443/v2/", "https://models.example.org:8443/v1x", "https://10.0.0.1/",
        "https://[::1]/", "https://[::ffff:10.0.0.1]/", "http://example.org/", "https://example.org:22/",
        "https://example.org:8443/v1/",
    ],
)  # fmt: skip
def test_what_is_not_listed_is_not_asked(url):
    with pytest.raises(AddressError, match="not among the URLs"):
        check_url(url, ANY)


def test_a_pattern_of_names_ends_at_a_dot_and_a_path_at_a_slash():
    listed = UrlPolicy(("https://*.corp.example/api",))
    assert check_url("https://a.b.corp.example/api/x?size=1", listed).host == "a.b.corp.example"
    for url in ("https://evilcorp.example/api", "https://corp.example/api", "https://a.corp.example/apis"):
        with pytest.raises(AddressError):
            check_url(url, listed)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.100.100.200", "0.0.0.0",
        "255.255.255.255", "224.0.0.1", "168.63.129.16", "192.0.0.192", "198.18.0.1", "::", "::1",
        "fe80::1", "fd00:ec2::254",
        "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2001:0:7f00:1::", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "ff02::1", "fec0::1", "2001:db8::1", "5f00::1", "100::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_the_internets(address):
    assert not is_public(ipaddress.ip_address(address))
    # One such address among several is enough.
    with pytest.raises(AddressError, match="not one of the internet"):
        checked_addresses(Target("https", "a.example", 443, "/", None), ["93.184.215.14", address], ANY)


def test_public_addresses_and_listed_ones_are_asked():
    target = Target("https", "a.example", 443, "/", None)
    public = ["93.184.215.14", "2606:4700::6810:84e5", "64:ff9b::5db8:d70e"]
    assert checked_addresses(target, public, ANY) == public
    within = UrlPolicy(("https://a.example",), networks=("10.2.0.0/16",))
    assert checked_addresses(target, ["10.2.3.4"], within) == ["10.2.3.4"]
    with pytest.raises(AddressError):
        checked_addresses(target, ["10.3.0.1"], within)
    literal = check_url("http://127.0.0.1:8000/x", ANY)
    assert checked_addresses(literal, ["127.0.0.1"], ANY) == ["127.0.0.1"]
