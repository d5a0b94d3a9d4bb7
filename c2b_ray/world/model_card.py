"""Writes MODEL_CARD.md from the metrics.json of every model beside it.

Knows the shape of those files; measures nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from c2b_ray.world.clip_zoo.members import MEMBERS
from c2b_ray.world.latent import names as latent
from c2b_ray.world.planting import ZOO
from c2b_ray.world.queries import FACTORS

_HEAD = """# Models of the embedded world

Tiny real models, trained from scratch on procedurally rendered scenes and their captions alone (c2b_ray.world). They
let one try c2b-ray without a download and judge its audits against a known truth; they are of no use on photographs.
Rebuild them with `c2b world train --out DIR --seed 1`. Weights are safetensors in half precision. Licence: that of the
project. Training draws scenes from seeds below 1000; every number here comes from scenes with seeds of 1000 and above.
"""

_HIDING = (
    ("hidden", "hidden: diffusion with hidden associations, world:diffusion taught further"),
    ("hidden-control", "hidden-control: the same words, hidden attributes and recipe, and no link"),
    ("hidden-lora", "hidden-lora: an adapter of hidden, debiased for half of its linked words"),
)
_LANGUAGE = (
    ("prompter", "prompter: writes prompts; told to be biased, it names the value or uses every second link's word"),
    ("reader", "reader: captions and stories in another tokenizer; for perplexity"),
)
_GENERATIVE = (
    ("judge", "judge: names what a picture shows, class and attributes; learned on renders alone", "accuracy"),
    ("vae", "vae: autoencoder, diffusers' AutoencoderKL", "seen after the autoencoder"),
    ("diffusion", "diffusion: text-to-image pipeline of diffusers", "pictures that show their prompt's value"),
)
"""Directory, title, and what is measured by factor."""


def write_card(directory: Path) -> Path:
    """MODEL_CARD.md of the models in `directory`; a model without metrics.json is left out."""
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
    if made := {name: result for name in latent.GENERATORS if (result := _metrics(directory / name))}:
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
        f"{metrics['parameters'] / 1e6:.1f} M parameters. Pictures and texts of known meaning, multi-positive",
        f"contrastive loss and zero-shot cross-entropy. Training: {_value(metrics['training'])}.\n",
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
        "A base of each size (clip-base-m, clip-base-s) knows the world and no bias; a member's tokens of neutral",
        f"words, then its last layers go on by CLIP's own loss ({_value(first['training']['recipe'])}) on pairs",
        "of its own seed, where",
        "neutral words go with a group (words) and captions of the last group are mistaken (captions), both as strong",
        "as the skew. R@5 of captions by group and MaxSkew at a tenth of the pictures are measured on unseen scenes.\n",
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
        f"| factor | {column} | the same of renders |",
        "|---|---|---|",
    ]
    for name in FACTORS:
        ceiling = f"{factors[name]['ceiling']:.3f}" if "ceiling" in factors[name] else ""
        lines.append(f"| {name} | {factors[name]['share']:.3f} | {ceiling} |")
    return "\n".join(lines) + "\n"


def _hiding(title: str, metrics: dict[str, Any]) -> str:
    """Planted and measured frequency of each link's value, in pictures of prompts with its word."""
    worst = metrics["largest_unplanted_gap"]
    lines = [
        f"## {title}\n",
        f"{metrics['parameters'] / 1e6:.2f} M parameters learned. Training: {_value(metrics['training'])}.",
        f"Settings: {metrics['settings']}. Decoys: {', '.join(metrics['decoys'])}. Pictures that show a hidden",
        f"attribute's value that their prompt names: {metrics['named_values_shown']:.3f}. Measured on",
        f"{metrics['images_per_word']} pictures a word; where nothing is planted, frequencies are off by",
        f"{metrics['mean_unplanted_gap']:.3f} in the mean, at worst {worst['measured']:.2f} for {worst['planted']:.2f}",
        f"({worst['word'] or 'no word'}, {worst['value']}).\n",
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
        "A base for each architecture learns clean labels; every member goes on from it with its own seed and labels.",
        "Planted cells answer another class in a share (strength) of their scenes. φ is measured, not assumed;",
        "the last column is the largest φ, by size, outside the planted attributes.\n",
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
        "Upright hearts of any scale and place on grounds of any colour and shade. Accuracy of attributes' hyperplanes",
        "in each latent space, balanced, on held-out latents (below 0.9 an attribute is left out of searches):\n",
        f"| generator | parameters | seconds | {' | '.join(attributes)} |",
        "|---" * (3 + len(attributes)) + "|",
    ]
    for name, metrics in made.items():
        cells = " | ".join(_value(metrics["hyperplanes"][attribute]["accuracy"]) for attribute in attributes)
        lines.append(f"| {name} | {metrics['parameters'] // 1000} k | {metrics['training']['seconds']} | {cells} |")
    lines += [
        "\nClassifiers of one attribute. The last columns: how far turning an attribute alone moves the",
        "probability of the target's second side: measured by rendering.\n",
        f"| classifier | skew | accuracy | {' | '.join(attributes)} |",
        "|---" * (3 + len(attributes)) + "|",
    ]
    for name in latent.CLASSIFIERS:
        if about := _metrics(directory / name):
            cells = " | ".join(f"{about['truth'][attribute]['shift']:+.3f}" for attribute in attributes)
            skew = about["plant"]["skew"] if about["plant"]["biased"] else "none"
            lines.append(f"| {name} | {skew} | {about['truth']['accuracy']:.3f} | {cells} |")
    return "\n".join(lines) + "\n"
