import re
import time

import pytest
from signed_in import Visitor

from c2b_ray.endpoint.ledger import audit_log, tenants

POSTS = [
    "/ui/submit", "/ui/check", "/ui/uploads", "/ui/keys", "/ui/signout", "/ui/uploads/x/delete", "/ui/keys/x/revoke",
    "/ui/keys/x/rotate", "/ui/audits/x/cancel", "/ui/audits/x/delete", "/ui/audits/x/questions", "/ui/signin",
]  # fmt: skip


def test_the_cookie_is_a_script_s_and_another_site_s_never_and_holds_no_key(endpoint):
    visitor = Visitor(endpoint)
    text = endpoint.keys["a"]
    answer = visitor.post("/ui/signin", {"key": text}, "/ui/signin")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/ui"} <= {part.strip() for part in cookie.split(";")}
    assert "Secure" not in cookie  # this endpoint is reached by http
    assert text not in cookie
    assert text[-32:] not in visitor.get("/ui/").text


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("sent", [{}, {"csrf": ""}, {"csrf": "of-another-session"}])
def test_a_form_without_its_session_s_token_is_refused(visitor, path, sent):
    answer = visitor("admin").client.post(path, data=sent)
    assert answer.status_code == 403
    assert "open the page again" in answer.text


def test_a_token_of_another_session_is_refused(endpoint, visitor):
    other = Visitor(endpoint, "admin").token()
    answer = visitor("admin").client.post("/ui/keys", data={"csrf": other, "name": "stolen", "scope_read": "yes"})
    assert answer.status_code == 403
    assert "stolen" not in [key.name for key in tenants.list_keys(endpoint.db, None)]


@pytest.mark.parametrize(
    "change", [lambda c: c[:-2], lambda c: ("B" if c[0] == "A" else "A") + c[1:], lambda c: "", lambda c: "a" * 5000]
)
def test_a_cookie_that_was_changed_is_none(endpoint, visitor, change):
    cookie = visitor("a").client.cookies["c2b_session"]
    stranger = Visitor(endpoint)
    answer = stranger.get("/ui/", headers={"cookie": f"c2b_session={change(cookie)}"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/signin?next=%2Fui%2F"


def test_an_api_cursor_is_no_session(endpoint):
    key = tenants.list_keys(endpoint.db, endpoint.tenants["a"])[0]
    forged = endpoint.context.signer.seal([key.id, "nonce", 9e9], "audits", endpoint.tenants["a"], None, None, None)
    assert Visitor(endpoint).get("/ui/", headers={"cookie": f"c2b_session={forged}"}).status_code == 303


def test_a_session_ends_with_its_key(endpoint):
    text = tenants.create_key(endpoint.db, endpoint.tenants["a"], "short").text
    endpoint.keys["short"] = text
    visitor = Visitor(endpoint, "short")
    assert visitor.get("/ui/").status_code == 200
    tenants.revoke_key(endpoint.db, None, tenants.verify_key(endpoint.db, text).id)
    assert visitor.get("/ui/").headers["location"].startswith("/ui/signin")


def test_a_session_is_no_way_into_the_api(visitor):
    assert visitor("a").get("/v1/audits").status_code == 401


@pytest.mark.parametrize(
    "leads",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/ui\n//evil.example",
     "/ui/\r\nSet-Cookie: a=b", "/v1/audits", "/ui/#@evil.example"],
)  # fmt: skip
def test_signing_in_leads_to_no_other_site(endpoint, leads):
    visitor = Visitor(endpoint)
    fields = {"key": endpoint.keys["a"], "next": leads}
    assert visitor.post("/ui/signin", fields, "/ui/signin").headers["location"] == "/ui/"


def test_signing_in_leads_back_to_the_page_that_was_wanted(endpoint):
    visitor = Visitor(endpoint)
    wanted = visitor.get("/ui/classifiers?x=1").headers["location"]
    page = visitor.get(wanted).text
    leads = re.search(r'name="next" value="([^"]+)"', page)[1]
    answer = visitor.post("/ui/signin", {"key": endpoint.keys["a"], "next": leads}, wanted)
    assert answer.headers["location"] == "/ui/classifiers?x=1"


def test_a_wrong_key_is_told_and_shown_nowhere(endpoint):
    wrong = "c2b_" + "a" * 8 + "_" + "b" * 32
    answer = Visitor(endpoint).post("/ui/signin", {"key": wrong}, "/ui/signin")
    assert answer.status_code == 401
    assert "unknown, expired or revoked" in answer.text
    assert wrong not in answer.text


@pytest.mark.parametrize("leave", ["signout", "signin"])
def test_a_session_that_was_left_is_over_wherever_its_cookie_is(endpoint, leave):
    visitor, other = Visitor(endpoint, "a"), Visitor(endpoint, "a")
    cookie, token = visitor.client.cookies["c2b_session"], visitor.token()
    fields = {"key": endpoint.keys["a"]} if leave == "signin" else {}
    assert visitor.post(f"/ui/{leave}", fields).status_code == 303
    assert visitor.get("/ui/").status_code == (200 if leave == "signin" else 303)
    thief = Visitor(endpoint)
    for path in ("/ui/", "/ui/usage"):
        answer = thief.get(path, headers={"cookie": f"c2b_session={cookie}"})
        assert answer.headers["location"].startswith("/ui/signin")
    form = thief.client.post("/ui/check", data={"csrf": token}, headers={"cookie": f"c2b_session={cookie}"})
    assert form.status_code == 401
    assert other.get("/ui/").status_code == 200  # another session of the same key
    until = time.time() + 13 * 3600
    assert tenants.forget_sessions(endpoint.db, time.time()) == 0
    assert tenants.forget_sessions(endpoint.db, until) == 1


def test_a_new_key_is_shown_once_and_works(endpoint, visitor):
    fields = {"name": "ci", "scope_read": "yes", "scope_submit": "yes", "days": "7"}
    answer = visitor("admin").post("/ui/keys", fields, "/ui/keys")
    text = re.search(r"c2b_[A-Za-z0-9]{8}_[A-Za-z0-9]{32}", answer.text)[0]
    assert answer.status_code == 201
    made = tenants.verify_key(endpoint.db, text)
    assert (made.name, made.scopes, made.tenant_id) == ("ci", ("submit", "read"), endpoint.tenants["a"])
    assert made.expires - made.created == pytest.approx(7 * 86_400)
    assert text not in visitor("admin").get("/ui/keys").text
    assert visitor("admin").post(f"/ui/keys/{made.id}/revoke", {}).status_code == 303
    assert tenants.verify_key(endpoint.db, text) is None
    assert audit_log.verify(endpoint.db) is None


@pytest.mark.parametrize("path", ["/ui/keys", "/ui/audit-log"])
def test_pages_of_admins_are_for_admins(visitor, path):
    assert visitor("a").get(path).status_code == 403
    assert visitor("operator").get(path).status_code == 200


def test_an_admin_sees_no_other_tenant_s_keys_and_makes_none(endpoint, visitor):
    assert endpoint.tenants["b"] not in visitor("admin").get("/ui/keys").text
    fields = {"name": "mine", "scope_read": "yes", "tenant": endpoint.tenants["b"]}
    assert visitor("admin").post("/ui/keys", fields, "/ui/keys").status_code == 404
    theirs = tenants.list_keys(endpoint.db, endpoint.tenants["b"])[0]
    assert visitor("admin").post(f"/ui/keys/{theirs.id}/revoke", {}).status_code == 404
    assert visitor("admin").post(f"/ui/keys/{theirs.id}/rotate", {}).status_code == 404
    assert tenants.why_key_fails(endpoint.db, theirs.id) is None
