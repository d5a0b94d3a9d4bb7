"""The forms of searches for prompts, audits of CLIP models and latent directions: what they hold becomes a config."""

import html
import re
from html.parser import HTMLParser

import pytest
from endpoint_app import CONFIG

from c2b_ray.endpoint.kinds import kinds
from c2b_ray.endpoint.ledger import jobs, running
from c2b_ray.endpoint.ledger.tables import Failure, Filters, NewJob
from c2b_ray.endpoint.web.submit import _OF_ROLE, config_of, filled
from c2b_ray.world.zoo import names

FORMS = {
    "prompts": (
        {"subjects": "bus, boat", "attributes": "lighting: day, night\nsize: small, large",
         "language_model": "world:lm",
         "generators": "world:linked", "judge": "world:clip", "guide": "judge", "yaml": "search: {images: 4}"},
        {"subjects": ["bus", "boat"], "attributes": {"lighting": ["day", "night"], "size": ["small", "large"]},
         "language_model": "world:lm", "generators": "world:linked", "judge": "world:clip", "guide": "judge",
         "search": {"images": 4}},
    ),
    "clip-bias": (
        {"models": "small: world:clip-09\nlarge: world:clip", "datasets.images.table": "data/people.parquet",
         "datasets.images.attributes": "coin", "groups.k": "1",
         "yaml": "datasets: {images: {texts: [a smart person]}}"},
        {"models": {"small": "world:clip-09", "large": "world:clip"}, "groups": {"k": 1},
         "datasets": {"images": {"table": "data/people.parquet", "attributes": ["coin"], "texts": ["a smart person"]}}},
    ),
    "latent": (
        {"generator": "world:diffusion?prompt=a bus", "classifier": "world:resnet-planted-1", "label": "boat"},
        {"generator": "world:diffusion?prompt=a bus", "classifier": "world:resnet-planted-1", "label": "boat"},
    ),
    "evaluate": (
        {"task": "Sort snapshots.", "classifier": "world:resnet-planted-0", "truth.table": "",
         "b2t.captioner": "world:clip", "b2t.encoder": "world:clip", "yaml": "truth: {world: {scenes: 1000}}"},
        {"task": "Sort snapshots.", "classifier": "world:resnet-planted-0", "truth": {"world": {"scenes": 1000}},
         "b2t": {"captioner": "world:clip", "encoder": "world:clip"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_makes_the_config_that_a_file_would_hold(kind):
    sent, config = FORMS[kind]
    assert config_of(kind, sent, sent.get("yaml", "")) == config


@pytest.mark.parametrize("kind", ["prompts", "latent", "evaluate"])
def test_a_form_is_shown_and_submits(endpoint, visitor, kind):
    page = visitor("a").get(f"/ui/submit?kind={kind}").text
    assert all(f'name="{field.name}"' in page for field in kinds()[kind].form)
    assert html.escape(kinds()[kind].question, quote=False) in html.unescape(page)
    sent = {"kind": kind, "name": f"a {kind}", "once": f"new-{kind}", **FORMS[kind][0]}
    assert visitor("a").post("/ui/submit", sent).status_code == 303
    newest = jobs.page(endpoint.db, endpoint.tenants["a"], Filters(kind=kind), limit=1).items[0]
    assert (newest.name, newest.config) == (f"a {kind}", FORMS[kind][1])
    shown = visitor("a").get(f"/ui/audits/{newest.id}")
    assert shown.status_code == 200
    assert html.escape(kinds()[kind].question, quote=False) in html.unescape(shown.text)


ODD = {
    "task": "Sort\nsnapshots.", "classes": ["bus, red", "boat"], "classifier": {"a": "world:clip", "b": "world:clip"},
    "images": {"source": ["retrieve", "generate"], "index": "data/idx", "generator": "world:renderer", "tau": 1e-07},
    "attributes": {"sky": ["no", "\u202eyes"], "1": ["2024-01-01", "x"]}, "language_model": None, "seed": True,
    "images_per_caption": 8.0, "intersections": [], "label_map": {},
}  # fmt: skip


class Form(HTMLParser):
    """What a browser sends of a page's form that nobody changed."""

    def __init__(self, page):
        super().__init__()
        self.fields, self._area, self._select = {}, None, None
        self.feed(page.partition('data-check="')[2])

    def handle_starttag(self, tag, attrs):
        held = dict(attrs)
        if tag == "input":
            self.fields[held["name"]] = re.sub(r"[\r\n]", "", held.get("value") or "")
        elif tag == "textarea":
            self._area, self.fields[held["name"]] = held["name"], ""
        elif tag == "select":
            self._select = held["name"]
        elif tag == "option" and self._select and "selected" in held:
            self._area, self.fields[self._select] = self._select, ""

    def handle_endtag(self, tag):
        self._area = None
        self._select = None if tag == "select" else self._select

    def handle_data(self, data):
        if self._area:
            self.fields[self._area] += data


@pytest.mark.parametrize(
    ("kind", "config"),
    [*((kind, config) for kind, (_, config) in FORMS.items()), ("c2b", ODD), ("c2b", {}), ("prompts", {"guide": 1}),
     ("c2b", CONFIG), ("c2b", {**CONFIG, "images": {"source": "labelled", "table": "data/t.csv", "index": ""}})],
)  # fmt: skip
def test_submit_it_again_opens_the_form_with_the_config_that_was_submitted(endpoint, visitor, kind, config):
    new = NewJob(kind, config, config, name="nightly")
    job, _ = jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
    jobs.request_cancel(endpoint.db, endpoint.tenants["a"], job.id)
    link = re.search(r'href="([^"]+)">Submit it again<', visitor("a").get(f"/ui/audits/{job.id}").text)[1]
    sent = Form(visitor("a").get(link).text).fields
    assert (sent["kind"], sent["name"]) == (kind, "nightly")
    assert config_of(kind, {name: text.strip() for name, text in sent.items()}, sent["yaml"]) == config
    assert visitor("b").get(link).status_code == 404


def test_every_job_that_did_not_finish_leads_to_where_it_is_submitted_again(endpoint, visitor, job_id):
    """A question has no form of its own: it is asked again on the page of its audit."""
    question = {"run": f"run:{job_id}", "sentence": "a bus"}
    whose, why = endpoint.tenants["a"], Failure("The key of this job has expired", "Submit it again.", None, None)
    for kind, config, end in (("c2b", CONFIG, running.fail), ("question", question, running.fail),
                              ("c2b", {**CONFIG, "seed": 1}, running.cancelled)):  # fmt: skip
        job, _ = jobs.submit(endpoint.db, whose, None, NewJob(kind, config, config), endpoint.config.quotas)
        fence = endpoint.claim(job.id).fence
        end(endpoint.db, job.id, fence, **{"failure" if end is running.fail else "reason": why})
        page = visitor("a").get(f"/ui/audits/{job.id}").text
        links = re.findall(r'href="([^"]+)">(?:[Ss]ubmit it|ask) again<', page)
        assert links == [f"/ui/submit?job={job.id}" if kind == "c2b" else f"/ui/audits/{job_id}#ask-heading"]
        assert visitor("a").get(links[0].partition("#")[0]).status_code == 200
        assert ("tell your operator" in page) == (end is running.fail)


def test_what_a_field_can_hold_stands_in_its_field_and_the_rest_as_yaml():
    held = filled("c2b", {**CONFIG, "seed": 7})
    assert (held["yaml"], held["classes"], held["attributes"]) == ("seed: 7\n", "bus, boat", "weather: clear, snow")


def test_runs_of_any_kind_are_offered_to_compare(endpoint, visitor):
    job, _ = endpoint.finish("prompts"), endpoint.finish("prompts")
    assert f'<option value="{job.id}">' in visitor("a").get("/ui/compare").text
    assert f'name="job" value="{job.id}"' in visitor("a").get("/ui/").text


def test_what_is_wrong_stands_beside_its_field(visitor):
    sent = {
        "kind": "clip-bias",
        "name": "",
        "once": "x",
        **FORMS["clip-bias"][0],
        "datasets.images.table": "/etc/passwd",
    }
    answer = visitor("a").post("/ui/submit", sent)
    assert answer.status_code == 422
    assert 'id="datasets.images.table" name="datasets.images.table" aria-describedby' in answer.text
    assert 'id="datasets.images.table-error">' in answer.text
    sent["models"] = "without a spec"
    assert "small: world:clip-09" in visitor("a").post("/ui/submit", sent).text


def test_every_kind_but_questions_has_a_form_and_every_list_of_models_has_some():
    assert {name for name, kind in kinds().items() if kind.form} == set(kinds()) - {"question"}
    assert [name for name, kind in kinds().items() if kind.questions is not None] == ["c2b", "failures"]
    assert all(names(role) for role in _OF_ROLE.values())
