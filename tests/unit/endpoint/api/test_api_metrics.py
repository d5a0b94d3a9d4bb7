"""GET /metrics: without a key, without names of tenants, by templates of routes."""

import secrets


def test_requests_are_counted_by_template_and_never_by_path(endpoint):
    mark = secrets.token_hex(8)
    endpoint.as_("a").get(f"/v1/audits/job_{mark}")
    endpoint.client.get(f"/no/such/{mark}")
    endpoint.client.request("BREW", "/healthz")
    answer = endpoint.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert mark not in answer.text
    assert 'c2b_http_requests_total{method="GET",route="/v1/audits/{job_id}",status="404"}' in answer.text
    assert 'c2b_http_requests_total{method="GET",route="unknown",status="404"}' in answer.text
    assert 'method="BREW"' not in answer.text
    assert 'c2b_rejects_total{reason="not_found"}' in answer.text
    assert "c2b_database_up 1.0" in answer.text


def test_no_name_of_a_tenant_or_key_is_shown(endpoint):
    endpoint.submit("a")
    text = endpoint.client.get("/metrics").text
    assert not any(name in text for name in (*endpoint.tenants.values(), *endpoint.keys.values()))
