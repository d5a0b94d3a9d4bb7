"""The numbers of `c2b clip-bias` computed again from its input tables, by plain code that shares nothing with it."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from io import BytesIO

import clip_bias_tables
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import c2b_ray
from c2b_ray.models import catalog
from c2b_ray.stats.retrieval import recall_at

QUICK = {"chance": {"permutations": 100, "resamples": 50}, "groups": {"k": 1}, "spaces": None}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    config = {**clip_bias_tables.write_tables(folder, images=120, seed=5), **QUICK, "skew_share": 1.0, "skew_k": 30}
    run = c2b_ray.clip_bias(config, folder / "run", via="here")
    people = pq.read_table(folder / "people.parquet").to_pylist()
    values = {(r["model"], r["metric"], r["attribute"]): r["value"] for r in run.biases.to_pylist()}
    return folder, config, people, values


def kl(rates):
    p = [rate / sum(rates) for rate in rates]
    return sum(x * math.log(x * len(p)) for x in p if x > 0)


def by_value(people, attribute, score):
    """The mean score of each value's images; `score`: key → (sum, number)."""
    sums = defaultdict(lambda: [0.0, 0.0])
    for row in people:
        if row[attribute] is not None:
            for at, number in enumerate(score[row["key"]]):
                sums[row[attribute]][at] += number
    return [total / count for _, (total, count) in sorted(sums.items())]


def test_recall_and_max_skew_from_the_encoder(case):
    _, config, people, values = case
    encoder = catalog.encoder("world:clip")
    images = encoder.encode_images([np.asarray(Image.open(BytesIO(row["image"]))) for row in people]).astype(float)
    texts = list(dict.fromkeys(text for row in people for text in row["caption"]))
    near = images @ encoder.encode_texts(texts).astype(float).T
    score = {
        row["key"]: (recall_at(np.argsort(-near[at], kind="stable"), [texts.index(t) for t in row["caption"]], 5), 1)
        for at, row in enumerate(people)
    }
    for attribute in ("coin", "die"):
        assert values["a", "kl_recall@5", attribute] == pytest.approx(kl(by_value(people, attribute, score)), abs=1e-9)
        there = [at for at, row in enumerate(people) if row[attribute] is not None]
        share = Counter(people[at][attribute] for at in there)
        skews = []
        for text in encoder.encode_texts(config["datasets"]["people"]["texts"]):
            top = sorted(there, key=lambda at: -(images[at] @ text.astype(float)))[:30]
            seen = Counter(people[at][attribute] for at in top)
            skews.append(max(math.log(n / 30 / (share[value] / len(there))) for value, n in seen.items()))
        assert values["a", "max_skew@30", attribute] == pytest.approx(np.mean(skews), abs=1e-9)


def test_accuracy_and_bias_amplification_from_the_answers(case):
    folder, _, people, values = case
    coin = {row["key"]: row["coin"] for row in people}
    for model in "ab":
        rows = pq.read_table(folder / f"vqa-{model}.parquet").to_pylist()
        score = defaultdict(lambda: (0, 0))
        for row in rows:
            right, count = score[row["image"]]
            score[row["image"]] = right + (row["answer"] == row["prediction"]), count + 1
        expected = kl(by_value(people, "coin", score))
        assert values[model, "kl_vqa_accuracy", "coin"] == pytest.approx(expected, abs=1e-9)
        kept = [row for row in rows if row["answer"] not in ("yes", "no") and coin[row["image"]]]
        n, total, answers = len(kept), 0.0, sorted({row["answer"] for row in kept})
        for a in ("heads", "tails"):
            of_a = [row for row in kept if coin[row["image"]] == a]
            for t in answers:
                true, said = (sum(row[name] == t for row in of_a) for name in ("answer", "prediction"))
                sign = np.sign(true * n - len(of_a) * sum(row["answer"] == t for row in kept))
                total += sign * (said - true) / len(of_a)
        assert values[model, "dba", "coin"] == pytest.approx(total / (2 * len(answers)), abs=1e-9)


def test_cider_from_its_formula(case):
    folder, _, people, values = case
    rows = {row["image"]: row["caption"] for row in pq.read_table(folder / "captions-a.parquet").to_pylist()}

    def grams(text, n):
        words = re.findall(r"[a-z0-9]+(?:'[a-z]+)*", text.lower())
        return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))

    found = Counter()
    for row in people:
        found.update({gram for text in row["caption"] for n in range(1, 5) for gram in grams(text, n)})

    def vector(text, n):
        return {gram: c * math.log(len(people) / max(1, found[gram])) for gram, c in grams(text, n).items()}

    score = {}
    for row in people:
        ours, each = rows[row["key"]], []
        for theirs in row["caption"]:
            gap = sum(grams(ours, 2).values()) - sum(grams(theirs, 2).values())
            for n in range(1, 5):
                a, b = vector(ours, n), vector(theirs, n)
                norm = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
                dot = sum(min(a[gram], b[gram]) * b[gram] for gram in a.keys() & b.keys())
                each.append(math.exp(-(gap**2) / 72) * (dot / norm if norm else 0.0))
        score[row["key"]] = (10 * sum(each) / len(each), 1)
    for attribute in ("coin", "die"):
        expected = kl(by_value(people, attribute, score))
        assert values["a", "kl_cider", attribute] == pytest.approx(expected, abs=1e-9)


def test_lic_says_which_values_are_too_rare_to_be_guessed(case, tmp_path):
    folder, config, *_ = case
    people = pq.read_table(folder / "people.parquet").to_pylist()
    for at, row in enumerate(people):
        row["coin"] = "edge" if at < 4 else row["coin"]
    pq.write_table(pa.Table.from_pylist(people), tmp_path / "people.parquet")
    dataset = {**config["datasets"]["people"], "table": str(tmp_path / "people.parquet"), "attributes": ["coin"]}
    captions = {"dataset": "people", "captions": {"a": config["downstream"]["captioning"]["captions"]["a"]}}
    changes = {"models": {"a": "world:clip"}, "datasets": {"people": dataset}, "downstream": {"captioning": captions}}
    run = c2b_ray.clip_bias({**config, **changes, "spaces": None, "leakage": {"folds": 5, "swaps": 8}}, tmp_path / "r")
    (lic,) = (row for row in run.biases.to_pylist() if row["metric"] == "lic")
    assert lic["note"] == "says nothing of 'edge' (4): fewer images than folds"
