"""Lists of administration come in pages, and all pages together are the list."""

from c2b_ray.endpoint.ledger import quotas, tenants


def pages(client, path, limit, **filters):
    items, cursor, count = [], None, 0
    while True:
        answer = client.get(path, params=filters | {"limit": limit} | ({} if cursor is None else {"cursor": cursor}))
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert len(body["items"]) <= limit
        items, cursor, count = items + body["items"], body["next"], count + 1
        if cursor is None:
            return items, count


def test_pages_of_keys_tenants_and_use_are_the_whole_lists(endpoint):
    db, tenant = endpoint.db, endpoint.tenants["a"]
    for number in range(5):
        made = tenants.create_key(db, tenant, f"key {number}")
        tenants.create(db, f"tenant-{number}")
        with db.transaction() as tx:
            quotas.add(tx, tenant, made.key.id, "m", 1, 0.5)
    operator, days = endpoint.as_("operator"), {"first_day": "2026-01-01", "last_day": "2999-01-01"}
    spent = quotas.spend(db, None, *days.values())
    for path, filters, name, wanted in (
        ("/v1/admin/keys", {}, "id", [one.id for one in tenants.list_keys(db, None)]),
        ("/v1/admin/tenants", {}, "id", [one.id for one in tenants.every(db)]),
        ("/v1/admin/usage", days, "key_id", [one.key_id for one in spent]),
    ):
        found, count = pages(operator, path, 2, **filters)
        assert [one[name] for one in found] == wanted
        assert count == -(-len(wanted) // 2) > 2
        assert pages(operator, path, 10_000, **filters) == (found, 1)
    own, _ = pages(endpoint.as_("admin"), "/v1/admin/keys", 2)
    assert {one["tenant_id"] for one in own} == {tenant}
    assert [one["id"] for one in pages(endpoint.as_("admin"), "/v1/admin/tenants", 1)[0]] == [tenant]


def test_a_cursor_of_another_list_or_tenant_is_refused(endpoint):
    operator = endpoint.as_("operator")
    tenants.create_key(endpoint.db, endpoint.tenants["a"], "one more")
    cursor = operator.get("/v1/admin/keys", params={"limit": 1}).json()["next"]
    for client, path in ((operator, "/v1/admin/tenants"), (endpoint.as_("admin"), "/v1/admin/keys")):
        assert client.get(path, params={"cursor": cursor}).json()["code"] == "bad_cursor"


def test_models_with_the_longest_specs_end_a_page(endpoint):
    tenant = endpoint.tenants["a"]
    with endpoint.db.transaction() as tx:
        for letter in "aé\U0001f68c":
            quotas.add(tx, tenant, "key", letter * 2000, 1, 0.5)
    wanted = [one.model for one in quotas.spend(endpoint.db, tenant, "2000", "3000")]
    found, _ = pages(endpoint.as_("admin"), "/v1/admin/usage", 1)
    assert [one["model"] for one in found] == wanted
    assert {"a" * 2000, "é" * 2000, "\U0001f68c" * 2000} <= {one["model"] for one in found}


def test_of_tenants_of_one_name_that_are_made_at_once_one_is_made(endpoint, monkeypatch):
    """Whoever looks whether it is there may look too early."""
    monkeypatch.setattr(tenants, "by_name", lambda db, name: None)
    made = [endpoint.as_("operator").post("/v1/admin/tenants", json={"name": "twice"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 409]
    assert made[1].json()["code"] == "exists"
