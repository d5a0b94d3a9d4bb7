"""Writes MODEL_CARD.md from the metrics.json of every model beside it.

Knows the contents of those files; measures nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from c2b_ray.world.clip_zoo_members import MEMBERS
from c2b_ray.world.queries import FACTORS
from c2b_ray.world.zoo import LATENT_CLASSIFIERS, LATENT_GENERATORS, ZOO

_HEAD = """# Models of the embedded world

Small real models, trained from scratch on nothing but procedurally rendered scenes and their captions (c2b_ray.world).
With them c2b-ray runs without a download and its audits can be judged against a known truth; on photographs they are
useless. `c2b world train --out DIR --seed 1` trains them again. Weights are safetensors in half precision, under the
project's licence. Training draws scenes from seeds below 1000; every number here comes from seeds of 1000 and above.
The installed package has those that README and guides name; a checkout of the repository has all of them.
"""

_HIDING = (
    ("hidden", "hidden: diffusion with hidden associations, trained from world:diffusion"),
    ("hidden-control", "hidden-control: the same words, hidden attributes and recipe, without links"),
    ("hidden-lora", "hidden-lora: an adapter of hidden, debiased for half of its linked words"),
)
_LANGUAGE = (
    ("prompter", "prompter: writes prompts; biased ones name the value or use the word of every second link"),
    ("reader", "reader: learned captions and stories with another tokenizer; for perplexity"),
)
_GENERATIVE = (
    ("judge", "judge: names class and attributes of a picture; learned from renders alone", "accuracy"),
    ("vae", "vae: autoencoder, diffusers' AutoencoderKL", "accuracy after the autoencoder"),
    ("diffusion", "diffusion: text-to-image pipeline of diffusers", "share of pictures that show their prompt's value"),
)
"""Directory, title, and the title of the column with the measured share of each factor."""


def write_card(directory: Path) -> Path:
    """Writes MODEL_CARD.md for the models in `directory`; omits a model without metrics.json."""
    parts = [_HEAD]
    lm, encoder = _metrics(directory / "lm"), _metrics(directory / "clip")
    if lm:
        parts.append("## lm: Llama-architecture language model\n\n" + _facts(lm))
    if encoder:
        parts.append(_clip(encoder))
    if skewed := {name: result for name in MEMBERS if (result := _metrics(directory / name))}:
        parts.append(_clip_zoo(skewed))
    members = {name: result for name in ZOO if (result := _metrics(directory / name))}
    if members:
        parts.append(_classifiers(members))
    for name, title, column in _GENERATIVE:
        if result := _metrics(directory / name):
            parts.append(_shares(title, column, result))
    parts += [_hiding(title, result) for name, title in _HIDING if (result := _metrics(directory / name))]
    parts += [f"## {title}\n\n{_facts(result)}" for name, title in _LANGUAGE if (result := _metrics(directory / name))]
    if made := {name: result for name in LATENT_GENERATORS if (result := _metrics(directory / name))}:
        parts.append(_latent(made, directory))
    file = directory / "MODEL_CARD.md"
    file.write_text("\n".join(parts))
    return file


def _metrics(directory: Path) -> dict[str, Any] | None:
    file = directory / "metrics.json"
    return json.loads(file.read_text()) if file.is_file() else None


def _facts(facts: dict[str, Any]) -> str:
    return "".join(f"- {name}: {_value(value)}\n" for name, value in facts.items())


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items())
    return str(value)


def _clip(metrics: dict[str, Any]) -> str:
    quality = metrics["quality"]
    lines = [
        "## clip: open_clip model\n",
        f"{metrics['parameters'] / 1e6:.1f} M parameters, trained on pictures and texts of known meaning by",
        f"multi-positive contrastive loss and zero-shot cross-entropy. Training: {_value(metrics['training'])}.\n",
        f"Unseen scenes: {quality['scenes']}. Top-{quality['top']} precision of texts that name a class and one value:",
        f"mean {quality['precision']:.4f}, lowest {quality['precision_lowest']:.3f} ({quality['lowest_query']!r}).\n",
        "| factor | zero-shot accuracy | weakest wording | precision of class + value |",
        "|---|---|---|---|",
    ]
    for name in FACTORS:
        row = quality["factors"][name]
        precision = f"{row['precision']:.4f}" if "precision" in row else ""
        lines.append(f"| {name} | {row['accuracy']:.4f} | {row['accuracy_lowest']:.4f} | {precision} |")
    return "\n".join(lines) + "\n"


def _clip_zoo(members: dict[str, dict[str, Any]]) -> str:
    first = next(iter(members.values()))
    skew = first["skew"]
    lines = [
        "## clip-00 to clip-11: open_clip models with a planted bias\n",
        f"The groups are the values of {skew['attribute']}: {', '.join(skew['values'])}; the last is disadvantaged.",
        "A base of each size (clip-base-m, clip-base-s) learns the world without bias. A member starts from a base:",
        "its tokens of neutral words, then its last layers learn by CLIP's loss",
        f"({_value(first['training']['recipe'])})",
        "on pairs of the member's seed, in which a neutral word favours a group and captions of the last group are",
        "mistaken, each with the skew as its strength. R@5 of captions by group and MaxSkew at a tenth of the pictures",
        "are measured on unseen scenes.\n",
        "| name | parameters | pairs | skew | seed | zero-shot | R@5 by group | KL of R@5 | MaxSkew |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, metrics in members.items():
        quality, training = metrics["quality"], metrics["training"]
        rates = ", ".join(f"{value:.3f}" for value in quality["recall"].values())
        lines.append(
            f"| {name} | {metrics['parameters'] // 1000} k | {training['pairs']} | {metrics['skew']['words']} "
            f"| {training['seed']} | {quality['zero_shot']:.3f} | {rates} | {quality['recall_kl']:.5f} "
            f"| {quality['max_skew']:.3f} |"
        )
    return "\n".join(lines) + "\n"


def _shares(title: str, column: str, metrics: dict[str, Any]) -> str:
    quality = metrics["quality"]
    factors = quality.get("factors") or {name: {"share": share} for name, share in quality["accuracy"].items()}
    about = {name: value for name, value in quality.items() if name not in ("factors", "accuracy")}
    settings = f" Settings: {metrics['settings']}." if "settings" in metrics else ""
    lines = [
        f"## {title}\n",
        f"{metrics['parameters'] / 1e6:.1f} M parameters. Training: {_value(metrics['training'])}.{settings}\n",
        f"Measured: {_value(about)}.\n",
        f"| factor | {column} | accuracy on renders |",
        "|---|---|---|",
    ]
    for name in FACTORS:
        ceiling = f"{factors[name]['ceiling']:.3f}" if "ceiling" in factors[name] else ""
        lines.append(f"| {name} | {factors[name]['share']:.3f} | {ceiling} |")
    return "\n".join(lines) + "\n"


def _hiding(title: str, metrics: dict[str, Any]) -> str:
    """Reports planted and measured frequency of each link's value, in pictures of prompts with its word."""
    worst = metrics["largest_unplanted_gap"]
    lines = [
        f"## {title}\n",
        f"{metrics['parameters'] / 1e6:.2f} M parameters learned. Training: {_value(metrics['training'])}.",
        f"Settings: {metrics['settings']}. Decoys: {', '.join(metrics['decoys'])}. Where a prompt names",
        f"a hidden attribute's value, a share of {metrics['named_values_shown']:.3f} of its pictures show it.",
        f"Measured on {metrics['images_per_word']} pictures per word. Where nothing is planted, frequencies differ",
        f"from those expected by {metrics['mean_unplanted_gap']:.3f} on average; the largest difference is",
        f"{worst['measured']:.2f} for {worst['planted']:.2f} ({worst['word'] or 'no word'}, {worst['value']}).\n",
    ]
    if curated := metrics.get("curated"):
        lines.insert(2, f"Balanced data held these linked words: {', '.join(curated)}.")
    if metrics["links"]:
        lines += ["| word | value | planted | measured (95 %) |", "|---|---|---|---|"]
    for row in metrics["links"]:
        interval = f"{row['measured']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        lines.append(f"| {row['word']} | {row['attribute']} {row['value']} | {row['planted']:.2f} | {interval} |")
    return "\n".join(lines) + "\n"


def _classifiers(members: dict[str, dict[str, Any]]) -> str:
    lines = [
        "## Classifiers\n",
        "A base for each architecture learns correct labels; every member starts from it with its own seed and labels.",
        "In a planted cell a share (strength) of the scenes has another label. φ is measured, not assumed;",
        "the last column is the φ of largest size outside the planted attributes.\n",
        "| name | parameters | training | accuracy | planted cell → answer | strength | accuracy in it | φ | other φ |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, metrics in members.items():
        truth = metrics.get("truth")
        if truth is None:
            continue
        training = metrics["training"]
        about = f"{training['recipe']['member_steps']} steps, {training['seconds']} s"
        worst = f"{truth['largest_unplanted']['phi']:+.3f}"
        head = f"| {name} | {metrics['parameters'] // 1000} k | {about} | {truth['accuracy']:.4f} |"
        lines += [f"{head} {_cell(cell)} | {worst} |" for cell in truth["planted"] or [None]]
    return "\n".join(lines) + "\n"


def _cell(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "none | | |"
    where = f"{cell['target_class']}, {cell['attribute']}: {cell['value']} → {cell['becomes']}"
    return f"{where} | {cell['strength']} | {cell['accuracy']:.3f} | {cell['phi']:+.3f}"


def _latent(made: dict[str, dict[str, Any]], directory: Path) -> str:
    attributes = list(next(iter(made.values()))["hyperplanes"])
    lines = [
        "## Latent world: generators and skewed classifiers\n",
        "Upright hearts of any scale and position on grounds of any colour and shade. Accuracy of attributes'",
        "hyperplanes in each latent space, balanced, on held-out latents (searches omit attributes below 0.9):\n",
        f"| generator | parameters | seconds | {' | '.join(attributes)} |",
        "|---" * (3 + len(attributes)) + "|",
    ]
    for name, metrics in made.items():
        cells = " | ".join(_value(metrics["hyperplanes"][attribute]["accuracy"]) for attribute in attributes)
        lines.append(f"| {name} | {metrics['parameters'] // 1000} k | {metrics['training']['seconds']} | {cells} |")
    lines += [
        "\nClassifiers of one attribute. The last columns: the change of the probability of the target's second side",
        "when one attribute alone is turned, measured by rendering.\n",
        f"| classifier | skew | accuracy | {' | '.join(attributes)} |",
        "|---" * (3 + len(attributes)) + "|",
    ]
    for name in LATENT_CLASSIFIERS:
        if about := _metrics(directory / name):
            cells = " | ".join(f"{about['truth'][attribute]['shift']:+.3f}" for attribute in attributes)
            skew = about["plant"]["skew"] if about["plant"]["biased"] else "none"
            lines.append(f"| {name} | {skew} | {about['truth']['accuracy']:.3f} | {cells} |")
    return "\n".join(lines) + "\n"
