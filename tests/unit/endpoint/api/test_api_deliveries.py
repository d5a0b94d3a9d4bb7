"""GET /v1/webhooks/{id}/deliveries: a tenant learns why its receiver was not reached."""

from c2b_ray.endpoint.ledger import webhooks


def test_a_tenant_reads_why_a_delivery_failed_and_no_other_does(endpoint):
    hook = webhooks.create(endpoint.db, endpoint.tenants["a"], "https://example.org/hook", "whsec_x")
    job = endpoint.finish()
    for delivery, _ in webhooks.due(endpoint.db):
        webhooks.failed(endpoint.db, delivery.id, "status 500", 10)
    path = f"/v1/webhooks/{hook.id}/deliveries"
    [item] = endpoint.as_("a").get(path).json()["items"]
    assert (item["job_id"], item["state"], item["attempts"], item["last_error"]) == (job.id, "pending", 1, "status 500")
    assert endpoint.as_("b").get(path).status_code == 404
