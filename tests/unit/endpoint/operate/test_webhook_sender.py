"""The sender of webhooks, against a real server: signed, once an attempt, tried again, and never to inner addresses."""

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ledgers import claimed, member

from c2b_ray.client import SignatureError, verify_webhook
from c2b_ray.client.webhooks import signature
from c2b_ray.config.endpoint import read_endpoint
from c2b_ray.endpoint.api.context import UrlSigner
from c2b_ray.endpoint.ledger import jobs, running, webhooks
from c2b_ray.endpoint.ledger.webhooks import ATTEMPTS, FIRST_S, LONGEST_S
from c2b_ray.endpoint.operate.webhooks import DeliverySender, retry_in

SECRET = "whsec_test"


class Receiver:
    """Answers with `status`, and remembers what it was sent."""

    def __init__(self):
        receiver = self
        self.posts, self.gets, self.status, self.location = [], 0, 200, None
        self.more = {"Content-Length": "0"}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.posts.append((self.path, dict(self.headers), body))
                status = receiver.status if self.path == "/hook" else 200
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", receiver.location)
                for header in receiver.more.items():
                    self.send_header(*header)
                self.end_headers()

            def do_GET(self):
                receiver.gets += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args): ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.base}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def sender(db, tmp_path, receiver):
    config = read_endpoint({"folder": str(tmp_path), "policy": {"webhooks": [receiver.base]}})
    made = DeliverySender(db, config)
    yield made
    made.close()


@pytest.fixture
def due(db, receiver):
    """A delivery that is due: its tenant, its webhook and its job."""
    who = member(db)
    hook = webhooks.create(db, who.tenant_id, receiver.url, SECRET)
    claim = claimed(db, who)
    running.finish(db, claim.job.id, claim.fence)
    return who, hook, claim.job


def sent(sender):
    sender.step()
    sender.wait()


def delivery(db, due):
    [only] = webhooks.deliveries(db, due[0].tenant_id, due[1].id)
    return only


def test_an_end_is_told_once_and_its_receiver_can_tell_who_sent_it(db, sender, receiver, due):
    sent(sender)
    sent(sender)
    [(_, headers, body)] = receiver.posts
    event = verify_webhook(SECRET, headers["C2B-Signature"], body)
    assert event["type"] == "audit.finished"
    assert event["audit"]["id"] == due[2].id
    assert event["id"] == headers["C2B-Delivery"] == delivery(db, due).id
    assert delivery(db, due).state == "delivered"
    with pytest.raises(SignatureError, match="not of this body"):
        verify_webhook(SECRET, headers["C2B-Signature"], body + b" ")


def test_a_receiver_that_fails_is_asked_again_later_and_at_last_given_up(db, sender, receiver, due, caplog):
    caplog.set_level(logging.DEBUG)
    receiver.status = 500
    for _ in range(ATTEMPTS + 2):
        sent(sender)
        db.skew += LONGEST_S + 1
    assert len(receiver.posts) == ATTEMPTS
    assert (delivery(db, due).state, delivery(db, due).last_error) == ("given_up", "status 500")
    assert len({json.loads(body)["id"] for _, _, body in receiver.posts}) == 1
    assert SECRET not in caplog.text


@pytest.mark.parametrize("more", [{"Content-Length": str(10 << 20)}, {"Content-Encoding": "gzip"}])
def test_a_receiver_has_received_whatever_follows_its_2xx(db, sender, receiver, due, more):
    """It was told twelve times where it answered at length, packed, or without an end."""
    receiver.more = more
    sent(sender)
    assert (delivery(db, due).state, len(receiver.posts)) == ("delivered", 1)


def test_a_receiver_that_is_gone_for_good_is_given_up_at_once(db, sender, receiver, due):
    receiver.status = 410
    sent(sender)
    assert delivery(db, due).state == "given_up"


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_to_the_metadata_address_is_refused(db, sender, receiver, due, status):
    receiver.status, receiver.location = status, "http://169.254.169.254/latest/meta-data/"
    sent(sender)
    assert delivery(db, due).state == "pending"
    assert delivery(db, due).attempts == 1
    assert ("169.254.169.254" if status != 302 else "redirects") in delivery(db, due).last_error


def test_a_redirect_that_drops_the_body_is_no_delivery(db, sender, receiver, due):
    receiver.status, receiver.location = 302, f"{receiver.base}/other"
    sent(sender)
    assert (delivery(db, due).state, receiver.gets) == ("pending", 0)


def test_a_redirect_that_keeps_the_body_is_followed_where_it_is_listed(db, sender, receiver, due):
    receiver.status, receiver.location = 307, f"{receiver.base}/other"
    sent(sender)
    assert delivery(db, due).state == "delivered"
    assert receiver.posts[1][2] == receiver.posts[0][2]


def test_several_senders_send_each_attempt_once(db, open_db, tmp_path, receiver):
    who = member(db)
    webhooks.create(db, who.tenant_id, receiver.url, SECRET)
    for _ in range(6):
        claim = claimed(db, who)
        running.finish(db, claim.job.id, claim.fence)
    config = read_endpoint({"folder": str(tmp_path), "policy": {"webhooks": [receiver.base]}})
    senders = [DeliverySender(open_db(), config) for _ in range(3)]
    threads = [threading.Thread(target=sent, args=(one,)) for one in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in senders:
        one.close()
    assert len(receiver.posts) == 6
    assert len({headers["C2B-Delivery"] for _, headers, _ in receiver.posts}) == 6


def test_a_deleted_job_is_told_of_no_more(db, sender, receiver, due):
    jobs.set_deleted(db, due[0].tenant_id, due[2].id)
    sent(sender)
    assert receiver.posts == []
    assert delivery(db, due).state == "given_up"


def test_a_url_that_the_policy_no_longer_lists_is_not_asked(db, tmp_path, receiver, due):
    one = DeliverySender(db, read_endpoint({"folder": str(tmp_path)}))
    sent(one)
    one.close()
    assert receiver.posts == []
    assert delivery(db, due).attempts == 1


def test_a_sender_that_comes_late_does_not_undo_a_delivery(db, due):
    [(taken, _)] = webhooks.due(db)
    webhooks.delivered(db, taken.id)
    webhooks.failed(db, taken.id, "status 500", None)
    assert delivery(db, due).state == "delivered"


def test_attempts_are_further_and_further_apart():
    waits = [retry_in(tried, lambda: 1.0) for tried in range(1, ATTEMPTS)]
    assert waits[0] == FIRST_S
    assert waits == sorted(waits)
    assert sum(waits) > 86_400 * 1.4
    assert retry_in(1, lambda: 0.0) == FIRST_S / 2


@pytest.mark.parametrize("header", ["", "t=1", "v1=ab", "t=x,v1=ab", "t=1,t=2,v1=ab", "t=-1,v1=ab", "t=1,v1=\u00e9"])
def test_what_is_no_signature_is_refused(header):
    with pytest.raises(SignatureError):
        verify_webhook(SECRET, header, b"{}", now=1)


def test_an_old_delivery_that_is_replayed_is_refused():
    header = signature(SECRET, b"{}", 1000)
    assert verify_webhook(SECRET, header, b"{}", now=1299) == {}
    with pytest.raises(SignatureError, match="300 s"):
        verify_webhook(SECRET, header, b"{}", now=1301)


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
