"""Where webhooks may be sent."""

import pytest

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.operate.webhooks import check_webhook, webhook_client
from c2b_ray.errors import AddressError

POLICY = Policy(
    webhooks=["https://hooks.example.org/c2b/", "https://*.corp.example"], urls=["https://models.example.org"]
)


def test_webhooks_have_a_list_of_their_own():
    assert check_webhook("https://a.corp.example/x", POLICY).host == "a.corp.example"
    for url in (
        "https://models.example.org/",
        "https://hooks.example.org/",
        "http://a.corp.example/x",
        "https://corp.example",
    ):
        with pytest.raises(AddressError):
            check_webhook(url, POLICY)
    with pytest.raises(AddressError):
        check_webhook("https://hooks.example.org/c2b/", Policy())


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
def test_a_listed_name_with_an_inner_address_is_not_asked(address):
    with webhook_client(POLICY, resolver=lambda host, port: [address]) as client, pytest.raises(AddressError):
        client.post("https://a.corp.example/x", json={})
