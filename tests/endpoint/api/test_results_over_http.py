"""What a finished audit shows: tables, images, report, exports, gates, comparisons."""

import csv
import io
import re

import pyarrow.parquet as pq
import pytest

from c2b_ray.storage.run import load_run


@pytest.fixture(scope="module")
def client(endpoint):
    return endpoint.as_("a")


@pytest.fixture(scope="module")
def run(endpoint, audited):
    return load_run(endpoint.run_path(audited))


def test_tables_come_by_pages_as_csv_and_as_parquet(client, audited, run):
    base = f"/v1/audits/{audited}/tables"
    listed = client.get(base).json()
    rows = {item["name"]: item["rows"] for item in listed["items"]}
    assert rows["scores"] == run.scores.num_rows > 5
    assert "csv" in listed["exports"]
    seen, cursor = [], None
    while True:
        page = client.get(f"{base}/scores", params={"limit": 7, **({"cursor": cursor} if cursor else {})}).json()
        seen += page["items"]
        if (cursor := page["next"]) is None:
            break
        assert client.get(f"{base}/captions", params={"cursor": cursor}).status_code == 400
    assert len(seen) == page["rows"] == rows["scores"]
    assert [row["n"] for row in seen] == run.scores["n"].to_pylist()
    text = client.get(f"{base}/images?format=csv")
    assert "bytes" not in text.text.splitlines()[0]
    assert len(list(csv.reader(io.StringIO(text.text)))) == rows["images"] + 1
    table = pq.read_table(io.BytesIO(client.get(f"{base}/images?format=parquet").content))
    assert table.num_rows == rows["images"]
    assert client.get(f"{base}/..%2frun").status_code == 404
    assert client.get(f"{base}/run.json").status_code == 404


def test_an_image_comes_by_its_id_alone(client, audited, run):
    images = run.images
    image_id, data = images["image_id"][0].as_py(), images["bytes"][0].as_py()
    answer = client.get(f"/v1/audits/{audited}/images/{image_id}")
    assert answer.content == data
    assert answer.headers["content-type"].startswith("image/")
    assert "sandbox" in answer.headers["content-security-policy"]
    for wrong in ("..%2f..%2frun.json", "part-0.parquet", "%00", images["key"][0].as_py().replace("/", "%2f")):
        assert client.get(f"/v1/audits/{audited}/images/{wrong}").status_code == 404


def test_a_report_shares_nothing_with_the_endpoint(client, audited, run):
    from c2b_ray.audits.runs import write_report

    write_report(run)
    answer = client.get(f"/v1/audits/{audited}/report")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert policy.endswith("sandbox allow-scripts")
    assert "unsafe" not in policy
    assert re.search(r"script-src 'sha256-", policy)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_page_without_a_policy_of_its_own_runs_nothing():
    from c2b_ray.endpoint.api.results import page_policy

    for page in (
        b"<script>alert(1)</script>",
        b'<meta http-equiv="Content-Security-Policy" content="x\r\nSet-Cookie: a">',
    ):
        assert page_policy(page).startswith("default-src 'none'; img-src data:;")


def test_exports_are_those_of_the_command_and_their_names_are_harmless(client, audited):
    for form in ("csv", "json", "parquet", "failures"):
        answer = client.get(f"/v1/audits/{audited}/exports/{form}")
        assert answer.status_code == 200
        assert re.fullmatch(r'attachment; filename="[\w.-]+"', answer.headers["content-disposition"])
    assert client.get(f"/v1/audits/{audited}/exports/model-card").status_code == 422  # of which classifier?
    assert client.get(f"/v1/audits/{audited}/exports/..%2frun").status_code == 404


def test_no_cell_of_a_csv_is_a_formula():
    import pyarrow as pa

    from c2b_ray.endpoint.api.results import csv_slices

    wrong = ["=1+1", "+cmd", "-2+3", "@SUM", "\tx", "\rx", "plain"]
    table = pa.table({"name": wrong, "nested": [[{"a": one}] for one in wrong], "number": [-0.5] * 7})
    rows = list(csv.reader(io.StringIO(b"".join(csv_slices([table])).decode(), newline="")))
    assert all(cell[0] not in "=+@\t\r" for row in rows for cell in row)
    assert {row[2] for row in rows[1:]} == {"-0.5"}
    assert rows[3][0] == "'-2+3"


def test_gates_and_comparisons_answer_in_the_form_that_is_accepted(client, audited, run):
    path = f"/v1/audits/{audited}/gate"
    result = client.post(path, json={"fail_on": ["accuracy<2"]}).json()
    assert result["failed"] is True
    assert {check["outcome"] for check in result["gates"]} == {"failed"}
    junit = client.post(path, json={"fail_on": ["accuracy<0"]}, headers={"accept": "application/xml"})
    assert junit.headers["content-type"].startswith("application/xml")
    assert b'failures="0"' in junit.content
    wrong = client.post(path, json={"fail_on": ["nonsense"]})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid")
    compared = client.get("/v1/comparisons", params={"a": audited}).json()
    assert compared["a"] == audited
    assert compared["cells"]
    page = client.get("/v1/comparisons", params={"a": audited}, headers={"accept": "text/html"})
    assert "sandbox" in page.headers["content-security-policy"]
    assert page.text.startswith("<!doctype html>") or "<html" in page.text


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ({"classifier_a": "nobody"}, ["classifier_a"]),
        ({"fail_on": "nonsense"}, ["fail_on"]),
        ({"fail_on": "phi>"}, ["fail_on"]),
    ],
)
def test_errors_of_comparisons_name_fields_of_the_request(client, audited, query, fields):
    wrong = client.get("/v1/comparisons", params={"a": audited, **query})
    assert (wrong.status_code, [one["field"] for one in wrong.json()["errors"]]) == (422, fields), wrong.text
    assert "--" not in wrong.text


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"fail_on": ["nonsense"]}, "fail_on"),
        ({"fail_on": ["against"], "classifier": "nobody"}, "classifier"),
    ],
)
def test_errors_of_gates_name_fields_of_the_request(client, audited, sent, field):
    wrong = client.post(f"/v1/audits/{audited}/gate", json=sent)
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, field), wrong.text
    assert wrong.json()["detail"].startswith(f"{field}: ")
    assert "--" not in wrong.text
    export = client.get(f"/v1/audits/{audited}/exports/csv", params={"classifier": "nobody"})
    assert (export.status_code, export.json()["errors"][0]["field"]) == (422, "classifier")


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"sentence": "something purple"}, "target_class"),
        ({"sentence": "a bus", "target_class": "zebra"}, "target_class"),
        ({"sentence": "a bus", "classifier": "nobody"}, "classifier"),
        ({"sentence": "a bus", "target": "car"}, "target"),
    ],
)
def test_a_question_that_its_run_does_not_fit_is_refused_at_once(client, audited, sent, field):
    wrong = client.post(f"/v1/audits/{audited}/questions", json=sent)
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, field), wrong.text
    assert "--" not in wrong.text


def test_a_question_is_a_job_of_its_own(endpoint, client, audited):
    answer = client.post(f"/v1/audits/{audited}/questions", json={"sentence": "a bus in the snow"})
    assert answer.status_code == 202, answer.text
    job = client.get(answer.headers["location"]).json()
    assert (job["kind"], job["config"]["run"]) == ("question", f"run:{audited}")
    assert client.get(f"/v1/audits/{job['id']}/answer").status_code == 404
    folder = endpoint.run_path(job["id"])
    folder.mkdir(parents=True)
    (folder / "answer.json").write_text(f'{{"answers": [], "run": "{folder}"}}')
    assert client.get(f"/v1/audits/{job['id']}/answer").json() == {"answers": [], "run": job["id"]}
    client.delete(answer.headers["location"])


def test_what_is_not_finished_says_so(endpoint, client):
    job_id = endpoint.submit()["id"]
    for path in ("report", "tables", "exports/csv", "tables/scores"):
        answer = client.get(f"/v1/audits/{job_id}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "nothing_yet")
    client.delete(f"/v1/audits/{job_id}")


def test_a_run_whose_files_are_gone_is_no_server_error(endpoint, client):
    job = endpoint.finish()
    assert client.get(f"/v1/audits/{job.id}/tables").status_code == 409
