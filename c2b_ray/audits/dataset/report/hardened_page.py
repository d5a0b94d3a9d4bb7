"""The page of a hardening: Table 7 of Wiles et al. 2022 with this run's numbers, and their meaning.

Knows the JSON of the results; knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from c2b_ray.report import words
from c2b_ray.report.page import render
from c2b_ray.report.redact import clean_setting, cleaned

NAMES = {"as_it_is": "As it is", "without": "Trained without the dataset", "with": "Trained with the dataset"}


@dataclass(frozen=True)
class Row:
    name: str
    clean: str
    clean_spread: str
    dataset: str
    dataset_spread: str
    seeds: str


@dataclass(frozen=True)
class HardenedView:
    classifier: str
    headline: str
    rows: tuple[Row, ...]
    findings: tuple[str, ...]
    method: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]


def hardened_page(results: Mapping[str, Any]) -> str:
    """Renders the page. `results`: the content of results.json."""
    return render("hardened.html.j2", hardened_view(results))


def hardened_view(results: Mapping[str, Any]) -> HardenedView:
    accuracy = results["accuracy"]
    as_it_is = accuracy["as_it_is"]["dataset"]["mean"]
    after_training = accuracy["with"]["dataset"]["mean"]
    return HardenedView(
        classifier=clean_setting(results["classifier"]),
        headline=f"On failures that it never saw, right in {words.percent(as_it_is)} of images as it is, "
        f"{words.percent(after_training)} after training with the others.",
        rows=tuple(_row(arm, accuracy[arm]) for arm in NAMES if arm in accuracy),
        findings=tuple(_findings(results["gain_of_with_over"])),
        method=tuple(_method(results)),
        settings=tuple(
            (name, str(value)) for name, value in cleaned({**results["options"], **results["recipe"]}).items()
        ),
    )


def _row(arm: str, accuracies: Mapping[str, Mapping[str, Any]]) -> Row:
    clean, dataset = accuracies["clean"], accuracies["dataset"]
    return Row(NAMES[arm], *_shown(clean), *_shown(dataset), words.count(dataset["seeds"]))


def _shown(accuracy: Mapping[str, Any]) -> tuple[str, str]:
    sd = accuracy["sd"]
    return f"{100 * accuracy['mean']:.2f}", "" if sd is None else f"± {100 * sd:.2f}"


def _findings(gains: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    sentences = []
    over = {"as_it_is": "the classifier as it is", "without": "the same training without the dataset"}
    for arm, gains_of_arm in gains.items():
        parts = []
        for name, images in (("dataset", "held-out failures"), ("clean", "clean images")):
            gain = gains_of_arm[name]
            interval = "" if gain["low"] is None else f" ({words.signed_range(gain['low'], gain['high'])})"
            parts.append(f"{words.signed(gain['mean'])}{interval} on {images}")
        sentences.append(f"Over {over[arm]}: accuracy {words.listed(parts)}.")
    of_dataset = {arm: gains_of_arm["dataset"]["mean"] for arm, gains_of_arm in gains.items()}
    if of_dataset.get("without", 1.0) < of_dataset["as_it_is"] / 2:
        sentences.append(
            "Most of the gain comes from training anew, not from the dataset: the classifier as it is was not trained "
            "on these clean images alone."
        )
    return sentences


def _method(results: Mapping[str, Any]) -> list[str]:
    split, options = results["split"], results["options"]
    is_by_caption = split["by"] == "caption"
    grouping = "images of one caption" if is_by_caption else "images whose perceptual hashes differ in at most 4 bits"
    other = "" if is_by_caption else " Images of one caption may be on both sides, as in the paper."
    left_out = results["left_out"]
    arm_sentence = ""
    if left_out["clean"] or left_out["dataset"]:
        of_either = (
            f"{words.plural(left_out['clean'], 'clean image')} and {words.plural(left_out['dataset'], 'failure')}"
        )
        arm_sentence = f" Not trained on: {of_either} that are copies of one that is measured on, mirrored ones too."
    begins = "fresh weights" if options["mode"] == "retrain" else "the classifier’s own weights"
    return [
        f"The dataset’s {words.count(split['rows'])} images are {words.plural(split['groups'], 'group')}: {grouping} "
        f"stay together.{other} About {words.percent(options['test_share'])} are held out, and accuracy on failures is "
        f"of these alone.{arm_sentence}",
        f"Each training begins from {begins}; {words.percent(options['share'])} of a batch is failures with their true "
        "label, the rest clean images. The same training without failures is what the dataset’s part in a gain is read "
        "from (Wiles et al. 2022, Appendix D, Table 7).",
        "± is the standard deviation over seeds; intervals are Student’s, 95 %, over seeds: they say how much training "
        "varies, not how much another dataset would.",
        "Images were selected because a classifier fails on them: its accuracy as it is lies near 0 by selection.",
        *_of_clean(results["clean"]),
    ]


def _of_clean(clean: Mapping[str, Any]) -> list[str]:
    """Says what clean accuracy is of, where the classifier as it is may have seen the images."""
    if clean["test"] is not None or str(clean["location"]).startswith("world:"):
        return []
    return [
        "Clean accuracy is of a tenth of --clean, which these trainings do not see. The classifier as it is was "
        "perhaps trained on it: then its clean accuracy is too high beside theirs; name others in --clean-test."
    ]
