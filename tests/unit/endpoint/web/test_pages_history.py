"""The pages and the route of a classifier's history."""

import json
import re

from endpoint_app import CONFIG
from run_recipes import CONTROL, Recipe
from synthetic_run import make_run

from c2b_ray.endpoint.ledger import jobs, running
from c2b_ray.endpoint.ledger.tables import NewJob
from c2b_ray.endpoint.web.overview import HistoryPoint, sparkline
from c2b_ray.tables import content_id

HOSTILE = "<img src=x onerror=alert(1)>'\"\u202egpj"


def test_a_history_has_a_point_of_each_audit_and_says_where_the_weights_changed(endpoint, visitor):
    config = {**CONFIG, "classifier": "world:resnet-control"}
    for accuracy, weights in ((0.5, "weights-1"), (0.9, "weights-2")):
        new = NewJob("c2b", config, config, name=f"of {weights}")
        job, _ = jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
        path = endpoint.run_path(job.id)
        recipe = Recipe(classes=("bus",), attributes={"size": ("small", "large")}, classifiers=(CONTROL,),
                        accuracy={(CONTROL, "bus", "small"): accuracy}, images_per_cell=20, pictures=False)  # fmt: skip
        make_run(path, recipe)
        running.finish(endpoint.db, job.id, endpoint.claim(job.id).fence, str(path), weights)
    assert CONTROL in visitor("a").get("/ui/classifiers").text
    page = visitor("a").get(f"/ui/classifiers/history?name={CONTROL}").text
    assert page.count("<circle") == 4
    assert "changed" in page
    assert page.count('<span class="caption">φ from ') == 2, "below each picture, for everyone to see"
    assert "over 2 of 2 audits</span>" in page
    assert visitor("b").get(f"/ui/classifiers/history?name={CONTROL}").status_code == 404
    of_weights = visitor("a").get("/ui/classifiers/history?hash=weights-2").text
    assert of_weights.count("<circle") == 2
    assert f"<code>{CONTROL}</code>" in of_weights
    assert "hash=weights-1" in page
    for who, weights in (("a", "weights-3"), ("b", "weights-2")):
        assert visitor(who).get(f"/ui/classifiers/history?hash={weights}").status_code == 404


def test_an_audit_of_several_classifiers_does_not_change_the_weights_of_each(endpoint, visitor):
    """`classifier_hash` of such a job is that of all of them; the job is found by the hash of each."""
    first, second = "world:first", "world:second"
    revisions = {first: "r-first", second: "r-second"}
    for specs in ([first], [first, second]):
        config = {**CONFIG, "classifier": specs}
        new = NewJob("c2b", config, config)
        job, _ = jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
        path = endpoint.run_path(job.id)
        recipe = Recipe(classes=("bus",), attributes={"size": ("small", "large")}, classifiers=tuple(specs),
                        images_per_cell=20, pictures=False)  # fmt: skip
        make_run(path, recipe)
        manifest = json.loads((path / "run.json").read_text())
        manifest["models"] = {f"classifier {spec}": {"spec": spec, "revision": revisions[spec]} for spec in specs}
        (path / "run.json").write_text(json.dumps(manifest))
        weights = content_id(*sorted(revisions[spec] for spec in specs))
        each = [content_id(revisions[spec]) for spec in specs if len(specs) > 1]
        running.finish(endpoint.db, job.id, endpoint.claim(job.id).fence, str(path), weights, each)
    page = visitor("a").get(f"/ui/classifiers/history?name={first}").text
    assert page.count(f'weights <a href="?hash={content_id("r-first")}">') == 2, "of both audits"
    assert "changed" not in page
    rows = re.findall(r">(world:\w+)</a></th><td>(\d+)</td><td>(\d+)</td>", visitor("a").get("/ui/classifiers").text)
    assert {(first, "2", "1"), (second, "1", "1")} <= set(rows), "audits and weights of each classifier"
    for hash_, audits, names in (("r-first", 2, {first}), ("r-second", 1, {second})):
        page = visitor("a").get(f"/ui/classifiers/history?hash={content_id(hash_)}").text
        assert f"over {audits} audit" in page
        assert page.count("<circle") == 2 * audits, "of this classifier alone, in one series"
        assert set(re.findall(r"world:\w+", page)) == names
        listed = endpoint.as_("a").get("/v1/classifiers/history", params={"classifier": content_id(hash_)}).json()
        assert len(listed["items"]) == audits
        of_b = endpoint.as_("b").get("/v1/classifiers/history", params={"classifier": content_id(hash_)}).json()
        assert of_b["items"] == []
    both = visitor("a").get(f"/ui/classifiers/history?hash={weights}").text
    assert both.count("<circle") == 4
    assert set(re.findall(r"world:\w+", both)) == {first, second}


def test_a_sparkline_escapes_its_title_and_leaves_gaps():
    plot = sparkline(
        [HistoryPoint(0.5, 0.2, 0.8, "for", 9), None, HistoryPoint(-2.0, None, None, "against", 9)], HOSTILE, 3
    )
    assert "<img" not in plot
    assert plot.count("<circle") == 2
    assert "φ from +0.50 to −2.00 over 2 of 3 audits" in plot


def test_a_sparkline_says_its_scale():
    plot = sparkline([HistoryPoint(0.5, 0.2, 0.8, "for", 9)], "bus", 1)
    assert re.findall(r'<text class="scale"[^>]*>([^<]+)</text>', plot) == ["+1", "0", "−1"]
