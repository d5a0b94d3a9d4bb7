"""`c2b remote`: options without effect, and misspelt ones, are refused as by the local commands."""

import json

import pytest

from c2b_ray.cli import remote
from c2b_ray.client.endpoint import Event

ROWS = [{"target_class": "bus", "phi": -0.3}, {"target_class": "boat", "phi": None}]


class Endpoint:
    """Stands in for a client of an endpoint with one finished job."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def tables(self, job):
        return {"items": [{"name": "scores", "rows": len(ROWS)}]}

    def rows(self, job, name):
        yield from ROWS

    def table(self, job, name, form):
        return {"csv": b"target_class,phi\n", "parquet": b"PAR1"}[form]


@pytest.fixture(autouse=True)
def connected(monkeypatch):
    for module in (remote, remote):
        monkeypatch.setattr(module, "connected", Endpoint)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("scores", "--format", "json"), ROWS),
        (("scores", "--format", "csv"), "target_class,phi\n"),
        ((), {"items": [{"name": "scores", "rows": 2}]}),
    ],
    ids=["json", "csv", "names"],
)
def test_tables_are_printed_or_written(c2b, tmp_path, options, expected):
    file = tmp_path / "out"
    status, printed, _ = c2b("remote", "tables", "job_1", *options)
    assert (status, c2b("remote", "tables", "job_1", *options, "--out", file)[:2]) == (0, (0, ""))
    assert file.read_text() == printed
    assert (printed if isinstance(expected, str) else json.loads(printed)) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tables", "job_1", "scores", "--format", "xlsx"), "expected csv, json or parquet"),
        (("gate", "job_1", "--fail-on", "against", "--junit", ""), "--junit: names no file"),
        (("compare", "job_1", "job_2", "--junit", "x.xml"), "--fail-on"),
        (("compare", "job_1", "job_2", "--fail-on", "worse", "--junit", ""), "--junit: names no file"),
    ],
)
def test_an_option_without_effect_is_refused(c2b, arguments, words):
    status, _, said = c2b("remote", *arguments)
    assert (status, words in said) == (2, True), said


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("net.onnx", "onnx"), ("NET.SafeTensors", "safetensors"), ("photos.zip", "images"), ("photos.tar.gz", "images"),
        ("bus.jpeg", "image"), ("rows.parquet", "table"), ("predictions.csv", "csv"), ("labels.txt", "text"),
    ],
)  # fmt: skip
def test_what_an_upload_is_follows_from_its_name(c2b, monkeypatch, name, kind):
    sent = []
    upload = lambda self, *what: sent.append(what) or {"spec": "upload:1"}  # noqa: E731
    monkeypatch.setattr(Endpoint, "upload", upload, raising=False)
    assert c2b("remote", "upload", name)[:2] == (0, "upload:1\n")
    assert c2b("remote", "upload", name, "--kind", "table")[0] == 0
    assert [what[:3] for what in sent] == [(name, kind, None), (name, "table", None)]


def test_an_upload_whose_name_does_not_say_what_it_is_is_refused(c2b):
    status, _, said = c2b("remote", "upload", "labels.docx")
    assert status == 2
    assert "labels.docx: its name does not say what it is" in said


def test_options_of_bare_images_do_not_belong_to_an_audit_file(c2b, tmp_path):
    (tmp_path / "audit.yaml").write_text("task: t")
    status, _, said = c2b("remote", "audit", tmp_path / "audit.yaml", "--classifier", "world:clip")
    assert status == 2
    assert "is an audit file, which says itself what --classifier" in said
    status, _, said = c2b("remote", "audit", tmp_path)
    assert status == 2
    assert "--classifier" in said
    assert "holds images: name what answers them" in said


def test_who_waits_reads_warnings_and_the_result_and_nothing_twice(c2b, monkeypatch):
    stage = {"stage": "start", "done": None, "total": None}
    events = [
        Event(1, "state", {"state": "running"}),
        Event(2, "progress", stage),
        Event(3, "progress", stage),  # seconds of use were booked
        Event(4, "warning", {"text": "93 % of the answers stand for no class"}),
        Event(5, "state", {"state": "finished"}),
    ]
    job = {"id": "job_1", "kind": "c2b", "state": "finished", "name": None, "progress": {}, "failure": None}

    def wait(self, job_id, on_event):
        for event in events:
            on_event(event)
        return {**job, "result": "1 finding, 0 clear"}

    monkeypatch.setattr(Endpoint, "wait", wait, raising=False)
    status, printed, said = c2b("remote", "wait", "job_1")
    assert (status, printed) == (0, "job_1  c2b  finished\n1 finding, 0 clear\n")
    assert said.splitlines() == [
        "running",
        "start",
        "warning: 93 % of the answers stand for no class",
        "finished",
        "its report: c2b remote report job_1 --out report.html",
    ]


def test_a_job_that_is_to_end_is_not_said_to_run_on(c2b, monkeypatch):
    job = {"id": "job_1", "kind": "c2b", "state": "running", "name": None, "progress": {"stage": None}}
    cancel = lambda self, job_id, purge: {**job, "cancel_requested": True}  # noqa: E731
    monkeypatch.setattr(Endpoint, "cancel", cancel, raising=False)
    ends = "job_1  c2b  running  ends at its next batch, because its cancellation was requested\n"
    assert c2b("remote", "cancel", "job_1")[:2] == (0, ends)


def test_who_is_interrupted_after_submitting_is_not_told_to_submit_again(c2b, monkeypatch, tmp_path):
    """The same command would start a second job; before the job there is, it sends what is missing."""
    steps = []
    job = {"id": "job_1", "kind": "failures", "state": "finished", "name": None, "progress": {}, "failure": None}
    monkeypatch.setattr(remote, "set_next_step", steps.append)
    monkeypatch.setattr(Endpoint, "upload_files", lambda self, kind, config, *_: steps.append("sent"), raising=False)
    monkeypatch.setattr(Endpoint, "submit", lambda self, *_: steps.append("submitted") or job, raising=False)
    monkeypatch.setattr(Endpoint, "wait", lambda self, *_, on_event: steps.append("waited") or job, raising=False)
    assert c2b("remote", "failures", tmp_path / "failures.yaml")[0] == 0
    goes_on = "the job goes on: c2b remote wait job_1, or cancel in place of wait"
    assert steps == ["sent", "submitted", goes_on, "waited"]


@pytest.mark.parametrize(
    ("refused", "status", "said"),
    [
        (None, 0, ""),
        ({"quota": "images_per_day", "detail": "90 of 100 images of today are used", "free_in_seconds": 7260.0}, 1,
         "would be refused now: images_per_day: 90 of 100 images of today are used (in 2\u202fh 1\u202fmin)"),
        ({"quota": "storage_bytes", "detail": "it is full; delete uploads or runs", "free_in_seconds": None}, 1,
         "would be refused now: storage_bytes: it is full; delete uploads or runs"),
    ],
)  # fmt: skip
def test_an_estimate_of_a_job_that_a_quota_would_refuse_says_so(c2b, monkeypatch, tmp_path, refused, status, said):
    answer = {"valid": True, "images_at_most": 320, "refused": refused}
    monkeypatch.setattr(Endpoint, "upload_files", lambda self, kind, config, *_: {}, raising=False)
    monkeypatch.setattr(Endpoint, "check", lambda self, kind, fields: answer, raising=False)
    ended, printed, told = c2b("remote", "failures", tmp_path / "failures.yaml", "--estimate")
    assert (ended, json.loads(printed)) == (status, answer)
    assert told.strip().endswith(said)
    assert bool(told) == bool(said)
