"""Which URLs this endpoint calls: those of models for jobs, those of webhooks itself. `models.url_guard` checks them.

A job's process applies the list for models itself: `isolation` puts it into the environment.
"""

from __future__ import annotations

import httpx

from c2b_ray.config.policy import Policy
from c2b_ray.endpoint.policy.schemes import url_policy
from c2b_ray.models.guarded_transport import GuardedTransport, Resolver, resolved
from c2b_ray.models.url_guard import Target, UrlPolicy, check_url

__all__ = ["check_webhook", "url_policy", "webhook_client", "webhook_policy"]


def webhook_policy(policy: Policy, seconds: float = 10.0) -> UrlPolicy:
    return UrlPolicy(tuple(policy.webhooks), tuple(policy.networks), seconds=seconds)


def check_webhook(url: str, policy: Policy) -> Target:
    """Raises AddressError if a webhook may not have this URL. Its host name is resolved only when it is called."""
    return check_url(url, webhook_policy(policy))


def webhook_client(policy: Policy, seconds: float = 10.0, resolver: Resolver = resolved) -> httpx.Client:
    """Returns a client that reaches only listed URLs at public addresses, and checks each redirect like a new request.

    It raises AddressError besides httpx's errors. Bodies of answers are not read: nobody uses them, and a receiver that
    has said 2xx has received.
    """
    transport = GuardedTransport(webhook_policy(policy, seconds), resolver=resolver, bodies=False)
    return httpx.Client(transport=transport, timeout=seconds, follow_redirects=True, max_redirects=3)
