import html
import io
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from endpoint_app import CONFIG
from run_recipes import CONTROL, PLANTED, Recipe
from starlette.routing import Route
from synthetic_run import make_run

from c2b_ray.endpoint.application import page_routes
from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, tenants
from c2b_ray.endpoint.ledger.tables import NewJob
from c2b_ray.endpoint.web import job as job_pages

HOSTILE = "<img src=x onerror=alert(1)>'\"\u202egpj"
FORM = {
    "kind": "c2b", "name": "nightly", "task": "Classify pictures.", "classes": "bus, boat", "classifier": PLANTED,
    "images.source": "generate", "images.generator": "world:renderer", "attributes": "weather: clear, snow",
    "images_per_caption": "8", "yaml": "seed: 3", "once": "a-form",
}  # fmt: skip


def _paths(job_id: str) -> list[str]:
    """Every page of a job, with what makes each answer of its own tenant well."""
    slice_ = f"classifier={CONTROL}&target_class=bus&attribute=weather&bias_class=snow"
    here = f"/ui/audits/{job_id}"
    return [here, f"{here}/tables/scores", f"{here}/slices", f"{here}/slice?{slice_}", f"{here}/exports/csv",
            f"{here}/report", f"/ui/compare?a={job_id}&b={job_id}&classifier_a={PLANTED}&classifier_b={CONTROL}",
            f"/ui/compare/report?a={job_id}&b={job_id}&classifier_a={PLANTED}&classifier_b={CONTROL}"]  # fmt: skip


def test_every_page_of_a_job_is_its_tenant_s_alone(endpoint, visitor, job_id):
    for path in _paths(job_id):
        assert visitor("a").get(path).status_code == 200, path
        answer = visitor("b").get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert visitor("b").get(path.replace(job_id, "job_" + "0" * 24)).status_code == 404, path
    image = re.search(r'src="(images/[^"]+)"', visitor("a").get(_paths(job_id)[3]).text)[1]
    assert visitor("a").get(f"/ui/audits/{job_id}/{image}").headers["content-type"].startswith("image/")
    assert visitor("b").get(f"/ui/audits/{job_id}/{image}").status_code == 404
    for action in ("cancel", "delete", "questions"):
        fields = {"sentence": "a bus in the snow"}
        assert visitor("b").post(f"/ui/audits/{job_id}/{action}", fields).status_code == 404, action
    assert visitor("b").get(f"/ui/audits/{job_id}/events").status_code == 404
    assert jobs.get(endpoint.db, endpoint.tenants["a"], job_id) is not None
    assert job_id not in visitor("b").get("/ui/").text


def test_an_audit_of_labelled_images_offers_no_question_and_refuses_one(endpoint, visitor, job_id):
    """It would have no image of the sentence, and the job would fail."""
    labelled = endpoint.finish()
    recipe = Recipe(config={"images": {"source": "labelled", "table": "labels.csv"}}, images_per_cell=4)
    make_run(endpoint.run_path(labelled.id), recipe)
    page, other = (visitor("a").get(f"/ui/audits/{one}").text for one in (labelled.id, job_id))
    assert "Ask a question" not in page
    assert "Ask a question" in other
    assert f"/ui/compare?a={labelled.id}" in page
    question, before = {"sentence": "a bus in the snow"}, jobs.page(endpoint.db, endpoint.tenants["a"]).items
    answer = endpoint.as_("a").post(f"/v1/audits/{labelled.id}/questions", json=question)
    assert (answer.status_code, answer.json()["code"]) == (409, "no_questions")
    assert "ask one whose images come from an index or a generator" in answer.json()["detail"]
    assert visitor("a").post(f"/ui/audits/{labelled.id}/questions", question).status_code == 409
    assert jobs.page(endpoint.db, endpoint.tenants["a"]).items == before


def finished_of_two(endpoint, name):
    """Returns the id of a finished audit of two classifiers, of which one is worse on snow."""
    config = {**CONFIG, "classifier": [PLANTED, CONTROL]}
    job, _ = jobs.submit(
        endpoint.db, endpoint.tenants["a"], None, NewJob("c2b", config, config, name=name), endpoint.config.quotas
    )
    path = endpoint.run_path(job.id)
    recipe = Recipe(classes=("bus", "boat"), attributes={"weather": ("clear", "snow")}, classifiers=(PLANTED, CONTROL),
                    accuracy={(PLANTED, "bus", "snow"): 0.1}, images_per_cell=60, pictures=False)  # fmt: skip
    make_run(path, recipe)
    running.finish(endpoint.db, job.id, endpoint.claim(job.id).fence, str(path), "weights")
    return job.id


def test_the_list_says_what_each_audit_is_of_and_what_it_found(endpoint, visitor):
    job_id = finished_of_two(endpoint, "nightly-two")
    page = visitor("a").get("/ui/?name=nightly-two").text
    row = re.search(rf'<a href="/ui/audits/{job_id}">.*?</tr>', page, re.S)[0]
    assert f'<td class="word">{PLANTED}, {CONTROL}</td>' in row
    assert "bus, weather snow: 10\u202f% right" in row
    assert "findings" in row


def test_two_classifiers_of_two_audits_are_chosen_to_be_compared(endpoint, visitor):
    first, second = (finished_of_two(endpoint, f"two-{number}") for number in (1, 2))
    page = visitor("a").get(f"/ui/compare?job={second}&job={first}").text
    assert "choose one on each side" in page
    sides = re.findall(r'<option value="([^"]+)" selected>([^<]+)</option>', page)
    assert sides == [(f"{first}~0", f"two-1 (c2b): {PLANTED}"), (f"{second}~0", f"two-2 (c2b): {PLANTED}")]
    assert 'name="classifier_a"' not in page
    for a, b, said in ((f"{first}~1", f"{second}~0", "Got worse"), (f"{first}~0", f"{first}~1", "Got better")):
        page = visitor("a").get(f"/ui/compare?a={a}&b={b}").text
        assert re.search(rf"{said}[^<]*</h2>\s*<div[^>]*>\s*<table.*?bus.*?snow", page, re.S), (a, b)
        assert re.findall(r'<option value="([^"]+)" selected>', page) == [a, b]
        link = html.unescape(re.search(r'href="(/ui/compare/report[^"]+)"', page)[1])
        assert visitor("a").get(link).status_code == 200
    named = visitor("a").get(f"/ui/compare?a={first}&b={second}&classifier_a={CONTROL}&classifier_b={PLANTED}").text
    assert re.findall(r'<option value="([^"]+)" selected>', named) == [f"{first}~1", f"{second}~0"]
    assert visitor("a").get(f"/ui/compare?a={first}~2&b={second}~0").status_code == 404
    assert visitor("a").get(f"/ui/compare?a={first}~x&b={second}~0").status_code == 404
    assert visitor("b").get(f"/ui/compare?a={first}~0&b={second}~0").status_code == 404


def test_no_page_but_the_first_is_for_who_is_not_signed_in(endpoint):
    from signed_in import Visitor

    stranger = Visitor(endpoint)
    for route in page_routes():
        assert isinstance(route, Route)
        if "GET" not in (route.methods or ()) or route.path in ("/signin", "/static/{name}"):
            continue
        answer = stranger.get("/ui" + re.sub(r"{\w+}", "x", route.path))
        assert (answer.status_code, answer.headers["location"][:10]) == (303, "/ui/signin"), route.path


def test_hostile_names_are_text(endpoint, visitor, job_id):
    new = NewJob("c2b", {**CONFIG, "task": HOSTILE}, CONFIG, name=HOSTILE.replace("\u202e", ""))
    job, _ = jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
    pages = ["/ui/", f"/ui/audits/{job.id}", f"/ui/audits/{job_id}/slices", f"/ui/audits/{job_id}/tables/captions",
             f"/ui/?name={HOSTILE}", f"/ui/audits/{job_id}/tables/scores?column=bias_class&text={HOSTILE}",
             f"/ui/classifiers/history?name={PLANTED}", "/ui/audit-log"]  # fmt: skip
    for path in pages:
        answer = visitor("admin").get(path)
        assert "<img src=x" not in answer.text, path
        assert "\u202e" not in answer.text, path
    assert html.escape("<img src=x onerror=alert(1)>") in visitor("admin").get(pages[2]).text
    sent = visitor("a").post("/ui/submit", {**FORM, "task": HOSTILE, "classifier": HOSTILE}, "/ui/submit")
    assert sent.status_code == 422
    assert "<img src=x" not in sent.text


def test_every_page_allows_only_its_own_script_and_style(visitor, job_id):
    for path in ("/ui/", "/ui/submit", f"/ui/audits/{job_id}", "/ui/nothing"):
        answer = visitor("a").get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<style|<script(?! src=)|<[^>]*\s(on\w+|style)=", answer.text), path
    report = visitor("a").get(f"/ui/audits/{job_id}/report").headers["content-security-policy"]
    assert report.endswith("sandbox allow-scripts")


def test_no_page_of_a_job_shows_where_it_lies(endpoint, visitor, job_id):
    for path in (f"/ui/audits/{job_id}", *_paths(job_id)):
        assert endpoint.config.folder not in visitor("a").get(path).text, path


def test_a_form_sent_twice_is_one_job_and_its_yaml_is_added(endpoint, visitor):
    first, second = (visitor("a").post("/ui/submit", FORM, "/ui/submit") for _ in range(2))
    assert first.status_code == 303, first.text
    assert first.headers["location"] == second.headers["location"]
    job = jobs.get(endpoint.db, endpoint.tenants["a"], first.headers["location"].rpartition("/")[2])
    assert job.name == "nightly"
    assert job.config == {
        "task": "Classify pictures.", "classes": ["bus", "boat"], "classifier": PLANTED,
        "images": {"source": "generate", "generator": "world:renderer"}, "attributes": {"weather": ["clear", "snow"]},
        "images_per_caption": 8, "seed": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"classifier": "nosuch:resnet"}, "classifier"),
        ({"classifier": "onnx:/etc/passwd"}, "classifier"),
        ({"images_per_caption": "many"}, "images_per_caption"),
        ({"attributes": "weather"}, "attributes"),
        ({"images.source": "labelled", "images.table": "../../b/data/t.csv"}, "images.table"),
        ({"yaml": "a: [1"}, "yaml"),
        ({"yaml": "- a"}, "yaml"),
        ({"classes": ""}, "classes"),
    ],
)
def test_what_is_wrong_is_told_beside_its_field_and_nothing_typed_is_lost(visitor, changes, field):
    answer = visitor("a").post("/ui/submit", {**FORM, **changes, "name": "keep me"}, "/ui/submit")
    assert answer.status_code in (400, 422)
    assert re.search(rf'id="{re.escape(field)}-error">[^<]', answer.text), answer.text
    assert 'value="keep me"' in answer.text
    checked = visitor("a").post("/ui/check", {**FORM, **changes}, "/ui/submit").json()
    assert (checked["valid"], checked["fields"]) == (False, [field])


def test_checking_says_how_many_images_and_keeps_nothing(endpoint, visitor):
    before = len(jobs.page(endpoint.db, endpoint.tenants["a"], limit=200).items)
    checked = visitor("a").post("/ui/check", FORM, "/ui/submit").json()
    assert checked["valid"]
    assert "160 images" in checked["message"]
    assert len(jobs.page(endpoint.db, endpoint.tenants["a"], limit=200).items) == before


def test_the_list_is_paged_in_any_order_without_losing_or_repeating_one(endpoint, visitor):
    names = [f"paged-{i % 10}-{i:02}" for i in range(60)]
    for name in names:
        new = NewJob("c2b", CONFIG, CONFIG, name=name)
        jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
    for query in ("sort=name&order=ascending", "sort=state", "sort=created", "sort=images&order=ascending"):
        seen, path = [], f"/ui/?name=PAGED&{query}"
        while path:
            page = visitor("a").get(path).text
            seen += re.findall(r">(paged-[^<]+)</a></th>", page)
            link = re.search(r'href="(\?[^"]+)" rel="next"', page)
            path = "/ui/" + html.unescape(link[1]) if link else ""
        assert sorted(seen) == sorted(names), query
    assert visitor("a").get("/ui/?sort=config").status_code == 422
    assert visitor("a").get("/ui/?cursor=abc").status_code == 400


def test_rows_filter_and_sort_by_a_column(visitor, job_id):
    path = f"/ui/audits/{job_id}/tables/scores?column=bias_class&text=SNOW&sort=target_class&order=descending"
    page = visitor("a").get(path).text
    assert "4 rows" in page
    assert "clear" not in re.search(r"<tbody>(.*)</tbody>", page, re.S)[1]
    classes = re.findall(r'<td class="word">(bus|&lt;img)', page)
    assert classes == ["bus", "bus", "&lt;img", "&lt;img"]
    assert visitor("a").get(f"/ui/audits/{job_id}/tables/scores?sort=nothing").status_code == 422
    assert visitor("a").get(f"/ui/audits/{job_id}/tables/..%2fmanifest").status_code == 404


def test_a_slice_shows_each_image_with_its_caption_and_its_answer(visitor, job_id):
    query = f"classifier={CONTROL}&target_class=bus&attribute=weather&bias_class=snow"
    every = visitor("a").get(f"/ui/audits/{job_id}/slice?{query}").text
    wrong = visitor("a").get(f"/ui/audits/{job_id}/slice?{query}&answers=wrong").text
    right = visitor("a").get(f"/ui/audits/{job_id}/slice?{query}&answers=right").text
    assert every.count("<figure") == 6 == wrong.count("<figure") + right.count("<figure")
    assert every.count('alt="') == 6
    assert visitor("a").get(f"/ui/audits/{job_id}/slice?{query.replace('snow', 'hail')}").status_code == 404


def test_a_failure_says_field_and_what_to_do(endpoint, visitor):
    job, _ = jobs.submit(
        endpoint.db, endpoint.tenants["a"], None, NewJob("c2b", CONFIG, CONFIG), endpoint.config.quotas
    )
    claim = endpoint.claim(job.id)
    running.fail(
        endpoint.db, job.id, claim.fence, tables.Failure("The weights are gone", "no such upload", "classifier")
    )
    page = visitor("a").get(f"/ui/audits/{job.id}").text
    assert "The weights are gone" in page
    assert "<code>classifier</code>" in page
    assert "submit it again" in page


def test_what_puts_a_result_in_doubt_stands_on_the_job_s_page(endpoint, visitor, job_id, monkeypatch):
    """As at a terminal: warnings with their words, and what concerns all findings above them."""
    summary = job_pages._summary
    doubt = "set-up: 93 % of the images are answered with <other> labels"
    with monkeypatch.context() as patch:
        doubted = lambda results: replace(summary(results), first=[doubt], lines=["1 finding"])  # noqa: E731
        patch.setattr(job_pages, "_summary", doubted)
        page = visitor("a").get(f"/ui/audits/{job_id}").text
    assert page.index("answered with &lt;other&gt; labels") < page.index("<p>1 finding</p>")

    job, _ = jobs.submit(
        endpoint.db, endpoint.tenants["a"], None, NewJob("c2b", CONFIG, CONFIG), endpoint.config.quotas
    )
    claim = endpoint.claim(job.id)
    running.report(endpoint.db, job.id, claim.fence, "warning", {"text": "no images of a <tram>"})
    assert "no images of a &lt;tram&gt;" in visitor("a").get(f"/ui/audits/{job.id}").text


def test_an_error_is_a_page_with_the_request_s_id(visitor):
    answer = visitor("a").get("/ui/nothing", headers={"X-Request-ID": "look-me-up"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "look-me-up" in answer.text
    assert visitor("a").get("/v1/nothing").headers["content-type"] == "application/problem+json"


def test_an_upload_is_checked_as_the_api_checks_it(endpoint, visitor):
    page = visitor("a")
    files = {"file": ("model.onnx", b"\x80\x04pickle", "application/octet-stream")}
    answer = page.post("/ui/uploads", {"kind": "onnx"}, "/ui/uploads", files=files)
    assert answer.status_code == 422
    sink = io.BytesIO()
    pq.write_table(pa.table({"image": ["a.png"], "label": ["bus"]}), sink)
    table = {"file": ("t.parquet", sink.getvalue(), "application/octet-stream")}
    answer = page.post("/ui/uploads", {"kind": "table"}, "/ui/uploads", files=table)
    assert answer.status_code == 303, answer.text
    listed = page.get("/ui/uploads").text
    sha256 = re.search(r"/ui/uploads/([0-9a-f]{64})/delete", listed)[1]
    assert visitor("b").post(f"/ui/uploads/{sha256}/delete", {}).status_code == 404
    assert page.post(f"/ui/uploads/{sha256}/delete", {}).status_code == 303
    assert sha256 not in page.get("/ui/uploads").text


def test_a_key_s_own_spend_is_on_its_page_and_no_other_key_s(endpoint, visitor):
    known = {key.name: key.id for key in tenants.list_keys(endpoint.db, endpoint.tenants["a"])}
    with endpoint.db.transaction() as tx:
        quotas.add(tx, endpoint.tenants["a"], known["reader"], "world:mine", 120, 61.0)
        quotas.add(tx, endpoint.tenants["a"], known["a"], "world:theirs", 7, 1.0)
    mine = visitor("reader").get("/ui/usage").text
    assert "world:mine" in mine.partition("Spend of your key")[2]
    assert "world:theirs" not in mine.partition("Spend of your key")[2]
    every = visitor("admin").get("/ui/usage").text.partition("Spend of each key")[2]
    assert {"world:mine", "world:theirs"} <= set(re.findall(r"world:\w+", every))
