"""The sender of webhooks: notifies each URL that a tenant registered when a job of that tenant has ended.

Several senders can share a ledger; each attempt is made by one. An event is sent until the receiver answers 2xx. If a
sender dies after the answer and before it records it, the event is sent twice; receivers recognise it by its id. The
sender calls only URLs that the policy lists, at checked addresses, and checks each redirect like a new request. No
secret and no answer is logged.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import httpx

from c2b_ray import __version__
from c2b_ray.client.webhooks import HEADER, signature
from c2b_ray.config.endpoint import EndpointConfig, Policy
from c2b_ray.endpoint.ledger import jobs, webhooks
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.tables import Job
from c2b_ray.endpoint.ledger.webhooks import Delivery, Webhook
from c2b_ray.errors import AddressError
from c2b_ray.models.url_guard import GuardedTransport, Resolver, Target, UrlPolicy, check_url, resolved
from c2b_ray.text import visible


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


EVERY_S = 1.0
AT_ONCE = 8
SECONDS = 10.0
"""Of a request with its answer. An attempt with all redirects ends within `ledger.webhooks.SENDING_SECONDS`."""
REDIRECTS = 2

_log = logging.getLogger(__name__)


class DeliverySender:
    """Sends due deliveries. `client`: an HTTP client; by default the one that the endpoint's policy allows."""

    def __init__(self, db: Database, config: EndpointConfig, client: httpx.Client | None = None) -> None:
        self._db, self._url = db, config.url
        self._client = client or webhook_client(config.policy, SECONDS)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._sending: set[Future[None]] = set()

    def run(self, stop: threading.Event) -> None:
        """Runs until `stop` is set; waits while the database is down."""
        try:
            while not stop.wait(EVERY_S):
                try:
                    self.step()
                except DatabaseDownError as error:
                    _log.debug("%s; webhooks wait", error)
        finally:
            self.close()

    def step(self) -> int:
        """Starts to send the due deliveries that there is room for; returns how many."""
        self._sending = {future for future in self._sending if not future.done()}
        slots = AT_ONCE - len(self._sending)
        due_deliveries = webhooks.due(self._db, slots) if slots else []
        self._sending |= {self._pool.submit(self._deliver, delivery, webhook) for delivery, webhook in due_deliveries}
        return len(due_deliveries)

    def wait(self) -> None:
        """Waits until all started deliveries have ended."""
        for future in self._sending:
            future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _deliver(self, delivery: Delivery, webhook: Webhook) -> None:
        try:
            error, may_retry = self._attempt(delivery, webhook)
            if error is None:
                webhooks.delivered(self._db, delivery.id)
                return
            attempts = delivery.attempts + 1
            delay = retry_in(attempts) if may_retry and attempts < webhooks.ATTEMPTS else None
            webhooks.failed(self._db, delivery.id, error, delay)
            _log.info("%s to %s: attempt %d: %s", delivery.id, webhook.id, attempts, error)
        except DatabaseDownError as error:
            _log.warning("%s; %s is sent again", error, delivery.id)
        except Exception:
            _log.exception("%s to %s is sent again", delivery.id, webhook.id)

    def _attempt(self, delivery: Delivery, webhook: Webhook) -> tuple[str | None, bool]:
        """Tries to deliver. Returns the error, or None, and whether another attempt may help."""
        body = self._body(delivery)
        if body is None:
            return "the job was deleted", False
        try:
            status = _post(self._client, webhook, delivery.id, body)
        except AddressError as error:
            return visible(str(error))[:300], True
        except httpx.HTTPError as error:
            return f"no answer: {type(error).__name__}", True
        if 200 <= status < 300:
            return None, False
        if 300 <= status < 400:
            return f"status {status}: register the URL that it redirects to", True
        return f"status {status}", status != HTTPStatus.GONE

    def _body(self, delivery: Delivery) -> bytes | None:
        job = jobs.get(self._db, None, delivery.job_id)
        from_event = webhooks.events_after(self._db, delivery.job_id, delivery.event_id - 1, 1)
        if job is None:
            return None
        state = (
            from_event[0].data.get("state", job.state)
            if from_event and from_event[0].id == delivery.event_id
            else job.state
        )
        content = {"id": delivery.id, "type": f"audit.{state}", "created": job.ended, "audit": _audit(job, self._url)}
        return json.dumps(content, separators=(",", ":")).encode()


def retry_in(attempts: int, chance: Callable[[], float] = random.random) -> float:
    """Returns the seconds until the next attempt after `attempts` of them. They grow, and are random, so that receivers
    that come back do not get all requests at once."""
    return webhooks.longest_wait(attempts) * (0.5 + chance() / 2)


def _post(client: httpx.Client, webhook: Webhook, delivery_id: str, body: bytes) -> int:
    """Sends the request and returns the status. It follows only redirects that keep method and body, since others would
    deliver nothing."""
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"c2b-ray/{__version__}",
        "C2B-Delivery": delivery_id,
        HEADER: signature(webhook.secret, body, int(time.time())),
    }
    request = client.build_request("POST", webhook.url, headers=headers, content=body)
    for _ in range(REDIRECTS + 1):
        answer = client.send(request, follow_redirects=False)
        following = answer.next_request
        if answer.status_code not in (307, 308) or following is None:
            break
        request = following
    return answer.status_code


def _audit(job: Job, url: str) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
        "images": job.images,
        "failure": job.failure,
        "url": f"{url}/v1/audits/{job.id}",
    }
