"""The report of `c2b failures`: what it says, from which draws, safe to open, and sensible with nothing to say."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html import unescape
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from failures_recipes import FLY, Cause, Recipe, showcase
from synthetic_failures import make_run

from c2b_ray import tables as schemas
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.report.captions import compared, mean_at_baselines
from c2b_ray.audits.failures.report.detail import Examples
from c2b_ray.audits.failures.report.facts import Tables, facts_of, read_facts
from c2b_ray.audits.failures.report.labels import at_baseline, labels
from c2b_ray.audits.failures.report.page import summary, write_report
from c2b_ray.audits.failures.report.rows import Hypothesis, findings_of
from c2b_ray.audits.failures.run import FailuresRun as Run
from c2b_ray.audits.runs import export

EVIL = '<script>alert("x")</script>'


def html_of(run: Run) -> str:
    return Path(write_report(run)).read_text(encoding="utf-8")


def text_of(html: str) -> str:
    shown = re.sub(r"<(script|style)>.*?</\1>", "", html, flags=re.DOTALL)
    return re.sub(r"[ \n]+", " ", unescape(re.sub(r"<[^>]+>", "", shown)))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    run = make_run(tmp_path_factory.mktemp("failures") / "run", showcase())
    return run, html_of(run)


def test_a_finding_is_one_sentence_with_its_numbers(shown: tuple[Run, str]) -> None:
    run, html = shown
    rows = run.read("hypotheses").to_pylist()
    bees = [row for row in rows if row["target"] == "bee" and row["verdict"] == "failure"]
    fly = max((row for row in bees if row["origin"] == "sentence"), key=lambda row: row["rate_low"])
    times = f"{round(fly['ratio']):,}"
    told = f"takes a fly for a bee {times} times as often where the prompt says “it is on a flower” ("
    assert told in text_of(html)
    assert "takes a crayfish for a chainlink fence where the prompt says “it is in a net” (" in text_of(html)
    assert "against none in 200,000 images of the baseline: at least" in text_of(html)
    assert "In doubt: only 60 % of the generator's images of crayfish show one." in text_of(html)


def test_classifiers_that_do_the_same_share_a_sentence_and_none_is_lost(shown: tuple[Run, str]) -> None:
    _, html = shown
    listed = html[html.index('<ol class="findings"') :]
    assert listed.count('<li class="against"') == 3
    assert html.count('<p class="claim"') == 3  # the answer at the head is the same three
    assert "6 findings in 3 sentences" in text_of(html)
    assert len(re.findall(r"So does timm:\S+ \([\d.]+\u202f% against [\d.]+\u202f%, detail\)", text_of(html))) == 3


def test_which_draws_chose_and_which_measured_is_said(shown: tuple[Run, str]) -> None:
    _, html = shown
    assert re.search(r"Captions were chosen on [\d,]+ images \(discovery\)", text_of(html))
    assert "(confirmation), from other seeds, that had no part in choosing them" in text_of(html)


def test_what_was_expected_and_what_could_not_be_said_stand_beside_what_was_spent(tmp_path: Path) -> None:
    least = [{"share": 0.1, "rate": 0.0005}, {"share": 0.02, "rate": 0.0009}]
    told = {"estimate": {"draws": [240_000, 640_000], "seconds": [2_000.0, 5_400.0], "least_rates": least}}
    told |= {"dropped_sentences": {"names_class": 7, "says_nothing": 2}}
    html = text_of(html_of(make_run(tmp_path / "run", Recipe(pictures=False, manifest=told)))).replace("\u202f", " ")
    assert "before the run 240,000 to 640,000 images and 33 min 20 s to 1 h 30 min of one process were expected" in html
    assert "With this budget a failure is found 4 times in 5, at best, if it happens on at least 0.050 % of the" in html
    assert "where 1 in 10 images of the label shows that; 0.090 % where 1 in 50 does." in html
    assert "7 sentences that name another label, which would ask for images of it and 2 that say nothing." in html


def test_a_finding_whose_measured_rate_may_be_the_baselines_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,), pictures=False))
    rows = run.hypotheses.to_pylist()
    plain = text_of(html_of(run))
    for row in rows:
        row |= {"ratio": 1.2, "ratio_low": 0.4, "ratio_high": 9.0} if row["verdict"] == "failure" else {}
    run.write("hypotheses", pa.Table.from_pylist(rows, schemas.HYPOTHESES))
    said = "Confirmed, but its measured rate is compatible with the baseline"
    assert said not in plain
    assert said in text_of(html_of(run))
    assert {row[-1] for row in summary(run).rows} == {"its rate"}


def test_every_link_leads_somewhere_and_plots_are_whole(shown: tuple[Run, str]) -> None:
    _, html = shown
    for link in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{link}"' in html
    plots = re.findall(r"<svg class=\"forest\".*?</svg>", html)
    assert len(plots) == 6
    for plot in plots:
        ET.fromstring(plot)
    links = re.findall(r'(?:src|href|url)\s*[=(]\s*["\']?([^"\'\s)>]+)', html.split("<script>")[0])
    assert all(link.startswith(("data:image/jpeg;base64,", "#")) for link in links)
    assert " style=" not in html
    assert "/data/" not in html  # of the index's path no more than its last part


def test_rates_and_pictures_come_from_the_measuring_part_of_confirmation(tmp_path: Path) -> None:
    """What decides a hypothesis, and what it was made from, would bias its rate."""
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,)))
    rounds = run.read("rounds")
    other = [row for row in rounds.to_pylist() if row["part"] != "measure"]
    for row in other:
        row |= {"failures": row["draws"], "predicted": ["a wolf"], "counts": [row["draws"]]}
        row["examples"] = [example | {"predicted": "a wolf"} for example in row["examples"]]
    kept = rounds.filter(pc.equal(rounds["part"], "measure"))
    spoilt = pa.concat_tables([kept, pa.Table.from_pylist(other, rounds.schema)])
    before = read_facts(run)
    after = facts_of(run.manifest, run.config, replace(before.tables, rounds=spoilt))
    assert after.tallies.confirmed == before.tallies.confirmed
    assert all("a wolf" not in tally.taken for tally in after.tallies.confirmed.values())


def test_pictures_of_discovery_are_shown_as_such_and_only_where_confirmation_has_none(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,)))
    facts, rounds = read_facts(run), run.read("rounds")
    shown = facts.shown()
    without = [row | ({"examples": []} if row["stage"] == "confirmation" else {}) for row in rounds.to_pylist()]
    for tables, stage in ((rounds, "confirmation"), (pa.Table.from_pylist(without, rounds.schema), "discovery")):
        examples = Examples([tables], shown)
        assert {example.stage for key in shown for example in examples.of(key, "bee")} == {stage}
    # Discovery had kept as many bees as a run keeps: confirmation's other mistakes do not stand for its bees.
    used_up = rounds.to_pylist()
    for row in used_up:
        if row["stage"] == "confirmation":
            row["examples"] = [example | {"predicted": "a wolf"} for example in row["examples"]]
    examples = Examples([pa.Table.from_pylist(used_up, rounds.schema)], shown)
    assert {(one.stage, one.predicted) for key in shown for one in examples.of(key, "bee")[:1]} == {
        ("discovery", "bee")
    }
    sample = [row | {"part": "sample"} for row in rounds.to_pylist()]  # of which all images are kept, right or wrong
    examples = Examples([pa.Table.from_pylist(sample, rounds.schema)], shown)
    assert not any(examples.of(key, "bee") for key in shown)


def test_images_of_several_classifiers_are_counted_once(tmp_path: Path) -> None:
    one, three = (make_run(tmp_path / str(n), Recipe(causes=(FLY,), classifiers=("a", "b", "c")[:n])) for n in (1, 3))
    assert read_facts(one).tallies.efforts == read_facts(three).tallies.efforts


def test_labelled_images_are_counted_once_and_not_called_drawn(tmp_path: Path) -> None:
    """Captions of a label share its images; a caption's baseline are the others."""
    drawn = Recipe(causes=(FLY,), more_labels=())
    images = {"images": {"labelled": {"table": "photos.csv"}}}
    run = make_run(tmp_path / "run", replace(drawn, config=images, verified=False))
    efforts = read_facts(run).tallies.efforts
    assert efforts["confirmation", "measure"].images == drawn.baseline_draws
    text = text_of(html_of(run))
    assert "where the table says “it is on a flower”" in text
    assert "a third of the table" in text
    for wrong in ("prompt says", "other seeds", "What the generator draws"):
        assert wrong not in text


def test_a_labelled_image_shows_the_name_of_its_file_and_a_drawn_one_none(tmp_path: Path) -> None:
    drawn = Recipe(causes=(FLY,), more_labels=())
    files = re.compile(r'<span class="file">([^<]+)</span>')
    assert not files.findall(html_of(make_run(tmp_path / "drawn", drawn)))
    run = make_run(tmp_path / "run", replace(drawn, config={"images": {"labelled": {"table": "photos.csv"}}}))
    html = html_of(run)
    assert "photos/fly-0.jpg" in files.findall(html)
    assert 'alt="Labelled a fly;' in html


def test_examples_of_an_older_run_have_no_names_and_are_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,)))
    rows = run.read("rounds").to_pylist()
    for row in rows:
        row["examples"] = [{name: one[name] for name in one if name != "key"} for one in row["examples"]]
    old = pa.Table.from_pylist(rows)
    assert "key" not in old.schema.field("examples").type.value_type.names
    shown = read_facts(run).shown()
    examples = Examples([old], shown)
    assert {one.file for key in shown for one in examples.of(key, "bee")} == {""}


def test_images_of_other_generators_have_no_part_in_the_baseline(tmp_path: Path) -> None:
    facts = read_facts(make_run(tmp_path / "run", Recipe(causes=(FLY,), others=("other:generator",))))
    rounds = facts.tables.rounds.to_pylist()
    strange = [row | {"generator": "other:generator", "failures": row["draws"]} for row in rounds]
    mixed = replace(facts.tables, rounds=pa.Table.from_pylist([*rounds, *strange], facts.tables.rounds.schema))
    after = facts_of(facts.manifest, facts.config, mixed)
    assert "other:generator" in after.generators
    assert labels(after) == labels(facts)
    assert compared(after) == compared(facts)


def test_a_classifiers_mean_at_the_baselines_is_over_all_labels_also_those_that_confirmation_left_out(tmp_path: Path):
    facts = read_facts(make_run(tmp_path / "run", Recipe(causes=(FLY,), more_labels=("boat",))))
    boat, rounds = facts.baselines["boat"].caption_id, facts.tables.rounds
    left = [row for row in rounds.to_pylist() if row["caption_id"] != boat or row["stage"] == "discovery"]
    never = [row | {"failures": 0} if row["caption_id"] == boat else row for row in left]
    few = facts_of(
        facts.manifest, facts.config, replace(facts.tables, rounds=pa.Table.from_pylist(never, rounds.schema))
    )
    _, fly = at_baseline(few, "fly", next(iter(few.names)))
    assert mean_at_baselines(few, next(iter(few.names))) == pytest.approx(fly.failures / fly.draws / 2)


def hypothesis(sentences: tuple[str, ...], rate: float, **fields: object) -> Hypothesis:
    known = {
        "classifier": "m", "generator": "g", "label": "fly", "target": "bee", "caption": ". ".join(sentences),
        "caption_id": "/".join(sentences), "parent_caption": None, "origin": "sentence", "stage": "confirmation",
        "draws": 1000, "failures": 9, "any_failures": 9, "baseline_rate": 0.001, "ratio": 9.0, "ratio_low": 3.0,
        "ratio_high": 30.0, "p_value": 0.0, "e_value": 1e9, "q_value": 0.0, "verdict": "failure",
        "baseline_draws": 1000, "baseline_failures": 1, "spent": 2000, "doubts": (),
    }  # fmt: skip
    return Hypothesis(**{**known, "sentences": sentences, "rate": rate, "rate_low": 0.8 * rate,
                         "rate_high": 1.2 * rate, **fields})  # fmt: skip


@pytest.mark.parametrize(
    ("others", "findings"),
    [
        ([(("it is on a flower", "it is dark"), 0.02)], 1),  # more words, the same
        ([(("it is on a yellow flower",), 0.02)], 1),  # an adjective
        ([(("it is on a flower", "it is dark"), 0.2)], 2),  # ten times as often: more than the same
        ([(("it is in a net",), 0.02)], 2),
        ([(("it is on a flower pot",), 0.02)], 2),  # another thing
    ],
)
def test_captions_that_say_the_same_are_one_finding(others: list[tuple[tuple[str, ...], float]], findings: int) -> None:
    lead = hypothesis(("it is on a flower",), 0.015)
    told = findings_of([*(hypothesis(*other) for other in others), lead])
    assert len(told) == findings
    assert lead in [finding.lead for finding in told]
    assert sum(len(finding.captions) for finding in told) == 1 + len(others)  # none is lost


def test_any_failure_stands_with_the_finding_of_the_same_caption_alone() -> None:
    towards = hypothesis(("it is on a flower",), 0.015)
    anyhow = hypothesis(("it is on a flower",), 0.04, target=None)
    alone = hypothesis(("it is dark",), 0.04, target=None)
    first, second = sorted(findings_of([anyhow, towards, alone]), key=lambda each: each.lead.target is None)
    assert (first.lead, first.anyhow) == (towards, anyhow)
    assert (second.lead, second.anyhow) == (alone, None)
    more = hypothesis(("it is on a flower", "it is dark"), 0.011, target=None)  # any failure; the lead's own are .009
    (finding,) = findings_of([towards, more])
    assert finding.captions == (towards, more)


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    cause = Cause(EVIL, "b&b's </style>", f"<b>it</b> is {EVIL}", 0.02, 0.05, 0.001)
    html = html_of(
        make_run(tmp_path / "run", Recipe(causes=(cause,), classifiers=("m<i>", "n</script>"), doubts=(EVIL,)))
    )
    assert html.count("<script") == html.count("</script") == 1  # the page's own
    assert html.count("</style>") == 1
    for raw in ("<b>it", "m<i>", "b&b"):
        assert raw not in html
    assert "&lt;script&gt;" in html
    for plot in re.findall(r"<svg class=\"forest\".*?</svg>", html):
        ET.fromstring(plot)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Recipe(causes=()), "No caption was tried"),
        (Recipe(causes=(Cause("fly", "bee", "it is red", 0.001, 0.0048, 0.001),)), "No caption is established"),
        (Recipe(pictures=False), "No picture of these failures was kept"),
        (Recipe(verified=False), "Nobody checked whether images show their label"),
        (Recipe(causes=(), more_labels=()), "No image was drawn"),
    ],
)
def test_nothing_to_say_is_said(tmp_path: Path, recipe: Recipe, said: str) -> None:
    run = make_run(tmp_path / "run", recipe)
    html = html_of(run)
    assert said in text_of(html)
    assert "cannot show that there are none" in text_of(html)
    assert summary(run).lines


def test_a_run_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    empty = Tables(*(getattr(schemas, name.upper()).empty_table() for name in Tables.__dataclass_fields__))
    images = {"generate": {"model": "world:renderer"}}
    fields = {"labels": ["bus"], "classifier": "world:resnet-planted-0", "images": images, "captioner": "world:clip"}
    config = FailuresConfig.model_validate(fields)
    facts = facts_of({"status": "running"}, config, empty)
    assert facts.findings == []
    assert facts.shown() == {}


def test_the_terminal_and_programs_get_the_findings_of_the_page(shown: tuple[Run, str]) -> None:
    run, _ = shown
    told = summary(run)
    assert len(told.rows) == len(told.to_json["findings"]) == 6
    assert told.rows[0][1:4] == ("crayfish", "chainlink fence", "it is in a net")
    assert told.to_json["findings"][0]["ratio"] is None  # infinite: nothing failed so at the baseline
    assert told.to_json["images"]["confirmation measure"] > 0


def test_a_finding_that_no_image_was_left_to_measure_says_so_and_claims_no_rate(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,), unmeasured=("fly",)))
    html = html_of(run)
    text = text_of(html)
    assert (
        "takes a fly for a bee where the prompt says “it is on a flower” (its rate is not known: no image was" in text
    )
    assert "Confirmed by the test alone" in text
    assert "against none in" not in text
    assert not re.search(r"\bnan\b|\b0 images that measured", text, re.IGNORECASE)
    assert not re.search(r"[\"'>]nan[\"'<]", html, re.IGNORECASE)
    finding = json.loads(json.dumps(summary(run).to_json, allow_nan=False))["findings"][0]
    assert (finding["draws"], finding["rate"], finding["ratio"]) == (0, None, None)
    document = json.loads(export(run, "json").decode(), parse_constant=pytest.fail)
    assert {row["rate"] for row in document["hypotheses"] if row["draws"] == 0} == {None}
