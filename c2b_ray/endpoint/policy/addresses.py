"""Which URLs this endpoint calls: models' for jobs, webhooks' for itself. `models.url_guard` decides which may be
called.

A job's process keeps to the models' list by itself: `isolation` puts it into its environment.
"""

from __future__ import annotations

import httpx

from c2b_ray.config.policy import Policy
from c2b_ray.endpoint.policy.schemes import url_policy
from c2b_ray.models.guarded_transport import GuardedTransport, Resolver, resolved
from c2b_ray.models.url_guard import Target, UrlPolicy, check_url

__all__ = ["check_webhook", "url_policy", "webhook_client", "webhook_policy"]

ANSWER_BYTES = 65_536
"""Of the answer to a webhook, which nobody reads."""


def webhook_policy(policy: Policy, seconds: float = 10.0) -> UrlPolicy:
    return UrlPolicy(tuple(policy.webhooks), tuple(policy.networks), ANSWER_BYTES, seconds)


def check_webhook(url: str, policy: Policy) -> Target:
    """AddressError where a webhook may not be sent there; its name is resolved when it is sent."""
    return check_url(url, webhook_policy(policy))


def webhook_client(policy: Policy, seconds: float = 10.0, resolver: Resolver = resolved) -> httpx.Client:
    """A client that reaches listed URLs at public addresses alone, each redirect checked like a new request;
    it raises AddressError besides httpx's own errors."""
    transport = GuardedTransport(webhook_policy(policy, seconds), resolver=resolver)
    return httpx.Client(transport=transport, timeout=seconds, follow_redirects=True, max_redirects=3)
