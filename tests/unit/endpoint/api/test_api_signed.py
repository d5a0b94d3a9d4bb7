"""Signed URLs over HTTP."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from ledgers import set_row


def test_a_signed_url_works_without_a_key_for_that_artifact_alone(endpoint):
    job, other = question(endpoint, "a"), question(endpoint, "a")
    answer = endpoint.as_("a").get(f"/v1/audits/{job}/signed").json()
    link = "?".join(urlsplit(answer["url"])[2:4])
    assert endpoint.client.get(link).text == "<p>a report</p>"
    for path in (f"/v1/audits/{other}/report", f"/v1/audits/{job}/tables/cells", f"/v1/audits/{job}"):
        moved = re.sub(r"^[^?]+", path, link)
        assert endpoint.client.get(moved).status_code == 401, path
    assert endpoint.client.delete(re.sub("/report", "", link)).status_code == 401
    assert endpoint.client.get(link, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_tenant_signs_nothing_of_another(endpoint):
    job = question(endpoint, "b")
    assert endpoint.as_("a").get(f"/v1/audits/{job}/signed").status_code == 404
    assert endpoint.as_("submitter").get(f"/v1/audits/{job}/signed").status_code == 403
    for artifact in ("exports/csv", "../secret", "tables/a/b", "report?x"):
        answer = endpoint.as_("b").get(f"/v1/audits/{job}/signed", params={"artifact": artifact})
        assert answer.status_code == 422, artifact


def question(endpoint, tenant):
    job = endpoint.finish("question", tenant)
    path = Path(endpoint.run_path(job.id, tenant))
    path.mkdir(parents=True)
    (path / "report.html").write_text("<p>a report</p>")
    set_row(endpoint.db, job.id, kind="question")
    return job.id
