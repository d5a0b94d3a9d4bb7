"""Tests `c2b prompts` on generators with planted associations: links found, gain over the language model, cost.

    python bench/prompts.py [--quick] [--prompts N] [--links FILE] [--generator SPEC] [--control SPEC] [--out FOLDER]
                            [--attributes NAMES] [--debiased] [--no-race] [--no-words] [--only-words]

It prints the rows of the issue's table. With `--quick`, the procedural generator is searched, and its judge guides the
search. Without it, heads on the activations of the diffusion models `world:hidden` and `world:hidden-control` guide the
search. `--debiased` adds two generators and a table by method: `world:hidden-lora`, and `world:hidden` debiased at test
time for the first attribute, by heads that are trained first. The links are those of the file, or
`world.associations.LINKS`; the search does not know them. Runs resume from FOLDER.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

import c2b_ray
from c2b_ray.audits.kit.session import Session
from c2b_ray.audits.prompts.config import read_prompts_config
from c2b_ray.audits.prompts.heads import heads_alone
from c2b_ray.audits.prompts.heads import path_of as heads_path
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.audits.prompts.steps.words import distinctive
from c2b_ray.world.associations import LINKS, Link, hidden_attributes, read_links
from c2b_ray.world.captions import ADJECTIVES, PHRASES
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

QUICK = ("world:linked", "world:linked?links=none", "judge")
FULL = ("world:hidden", "world:hidden-control", "heads")
WEIGHT = 100.0


def attribute(name: str) -> dict[str, Any]:
    """Returns an attribute of the world in the form of a config."""
    values = ATTRIBUTES[name]
    worded = distinctive(PHRASES[name])
    synonyms = {value: sorted({*ADJECTIVES.get(name, {}).get(value, ()), *worded[value]}) for value in values}
    texts = {value: f"a photo of something {PHRASES[name][value][0]}" for value in values}
    return {"values": list(values), "texts": texts, "synonyms": synonyms}


def config(
    links: Sequence[Link], generators: Mapping[str, str], guide: str, asked: argparse.Namespace
) -> dict[str, Any]:
    size = {"prompts": asked.prompts or (8 if asked.quick else 12), "images": 10}
    names = asked.attributes.split(",") if asked.attributes else hidden_attributes(links)
    search = {"weights": [10.0, WEIGHT] if asked.prompts is None else [WEIGHT], "images": 16}
    if asked.tokens:
        search["most_tokens"] = asked.tokens
    return {
        "subjects": list(CLASSES),
        "attributes": {name: attribute(name) for name in names},
        "generators": dict(generators),
        "language_model": asked.language_model,
        "reader": asked.reader,
        "encoder": asked.encoder,
        "judge": "world:clip",
        "guide": guide,
        "methods": ["curated", "templates", "llm", "llm_biased", "pez", "bgps"],
        "search": search,
        "heads": {"prompts": 120, "images": 4} if asked.prompts is None else {"prompts": 80, "images": 3},
        "evaluation": size,
        "associations": None if asked.no_words else {"generators": ["base", "control"]},
        "modifiers": None if asked.no_words else {"prompts": 1, "images": 12},
        "seed": asked.seed,
    }


def frequencies(run: PromptsRun, generator: str, method: str) -> dict[tuple[str, str], float]:
    return {
        (row["attribute"], row["value"]): row["frequency"]
        for row in run.methods.to_pylist()
        if row["generator"] == generator and row["method"] == method and row["frequency"] is not None
    }


def gain(run: PromptsRun, generator: str) -> str:
    """Returns the mean over values of the search's frequency minus that of the language model's own prompts."""
    method = f"bgps λ={WEIGHT:g}"
    for row in run.gains.to_pylist():
        if row["generator"] == generator and row["method"] == method:
            span = "no interval" if row["low"] is None else f"{row['low']:+.3f} to {row['high']:+.3f}"
            return f"{row['gain']:+.3f} ({span}; {row['verdict']})"
    return "not measured"


def words_found(run: PromptsRun, generator: str) -> set[tuple[str, str, str]]:
    return {
        (row["word"], row["attribute"], row["value"])
        for row in run.associations.to_pylist()
        if row["raises"] and row["generator"] == generator
    }


def of_method(run: PromptsRun, generator: str, method: str, column: str) -> list[float]:
    rows = run.prompts.to_pylist()
    return [
        float(row[column])
        for row in rows
        if row["generator"] == generator and row["method"] == method and row[column] is not None
    ]


def links_row(run: PromptsRun, links: Iterable[Link]) -> tuple[str, str, str]:
    truth = {(link.word, link.attribute, link.value) for link in links if link.strength > 0}
    found, control = words_found(run, "base"), words_found(run, "control")
    false = len(found - truth) / max(1, len(found))
    got = f"{len(found & truth)} of {len(truth)} = {len(found & truth) / len(truth):.2f}; {false:.2f}; control finds "
    got += f"{len(control)}; its gain {gain(run, 'control')}"
    return "planted links found; false; control's gain", "≥ 0.8; ≤ 0.05; within ±0.05", got


def link_rows(run: PromptsRun, links: Iterable[Link]) -> list[str]:
    """Returns each planted link with its measured effect: a generator may show a link less than it was planted."""
    rows = {
        (r["word"], r["attribute"], r["value"]): r for r in run.associations.to_pylist() if r["generator"] == "base"
    }
    result = ["| word | value | planted: adds | measured: adds (95 %) | q | look | images | found |", "|---" * 8 + "|"]
    for link in links:
        planted = f"{link.probability - 1 / len(ATTRIBUTES[link.attribute]):+.2f}"
        row = rows.get((link.word, link.attribute, link.value))
        if row is None:
            result.append(f"| {link.word} | {link.value} | {planted} | not tested | | | | no |")
            continue
        measured = f"{row['effect']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f}) | {row['q_value']:.1e}"
        looked = f"{row['look']} | {row['images_used']} | {'yes' if row['raises'] else 'no'}"
        result.append(f"| {link.word} | {link.value} | {planted} | {measured} | {looked} |")
    return result


def gain_row(run: PromptsRun) -> tuple[str, str, str]:
    method = f"bgps λ={WEIGHT:g}"
    leaked = fmean(of_method(run, "base", method, "leaked"))
    pez, search = (of_method(run, "base", name, "perplexity") for name in ("pez", method))
    share = median(search) / median(pez) if pez else float("nan")
    pez_median = median(pez) if pez else float("nan")
    return (
        "gain over the language model's prompts; leakage; perplexity against PEZ",
        "≥ +0.15; ≤ 2 %; ≤ 1/10",
        f"{gain(run, 'base')}; {100 * leaked:.1f} %; {median(search):.0f} / {pez_median:.0f} = {share:.4f}",
    )


def race_row(raced: PromptsRun, fixed: PromptsRun) -> tuple[str, str, str]:
    method = f"bgps λ={WEIGHT:g}"
    images = [
        sum(
            row["images_used"]
            for row in run.methods.to_pylist()
            if row["method"] == method and row["generator"] == "base"
        )
        for run in (raced, fixed)
    ]
    means = [fmean(frequencies(run, "base", method).values()) for run in (raced, fixed)]
    got = f"{images[0]:,} / {images[1]:,} = {images[0] / images[1]:.2f} at {means[0]:.3f} and {means[1]:.3f}"
    return "raced against fixed K: images; mean frequency", "≤ 1/4 at ± 0.03", got


def method_rows(run: PromptsRun) -> list[str]:
    """Returns the paper's table: the mean over values for each generator and method."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in run.methods.to_pylist():
        groups.setdefault((row["generator"], row["method"]), []).append(row)
    result = ["| generator | method | frequency | perplexity | leaked | prompts |", "|---|---|---|---|---|---|"]
    for (generator, method), rows in groups.items():
        rates = [row["frequency"] for row in rows if row["frequency"] is not None]
        read = [row["perplexity"] for row in rows if row["perplexity"] is not None]
        count = sum(row["prompts"] for row in rows)
        leaked = sum(row["leaked"] * row["prompts"] for row in rows) / max(1, count)
        rate, perplexity = f"{fmean(rates):.3f}" if rates else "–", f"{median(read):.0f}" if read else "–"
        result.append(f"| {generator} | {method} | {rate} | {perplexity} | {100 * leaked:.1f} % | {count} |")
    return result


def debiased(whole: dict[str, Any], out: str, asked: argparse.Namespace) -> dict[str, str]:
    """Returns the debiased generators: one with an adapter, one debiased at test time by heads on its activations."""
    folder = f"{out}/heads-of-base"
    base = {**whole, "generators": {"base": whole["generators"]["base"]}, "methods": ["bgps"], "associations": None}
    table = heads_alone(read_prompts_config(base), folder, Session(asked.via, None, print))
    for row in table.to_pylist():
        if row["guides"]:
            print(f"heads of {row['attribute']}: step {row['step']}, {row['accuracy']:.2f}, chance {row['chance']:.2f}")
    steered = heads_path(folder, "base", next(iter(whole["attributes"])))
    return {"lora": "world:hidden-lora", "test time": f"{whole['generators']['base']}?debias={steered}"}


def words_alone(whole: dict[str, Any], links: Sequence[Link], asked: argparse.Namespace) -> None:
    """Prints the links that the generators show for single words, without a search or heads."""
    kept = {name: value for name, value in whole.items() if name != "heads"}
    few = {"prompts": 1, "images": 4}
    kept |= {"methods": ["llm"], "guide": "judge", "modifiers": None, "evaluation": few}
    run = c2b_ray.search_prompts(kept, f"{asked.out}/words", asked.via, print)
    print("| what | wanted | got |\n|---|---|---|", f"| {' | '.join(links_row(run, links))} |", sep="\n")
    print("", *link_rows(run, links), sep="\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--prompts", type=int, help="prompts per method and value, only at λ 100: a smaller bench")
    parser.add_argument("--links")
    parser.add_argument("--generator")
    parser.add_argument("--control")
    parser.add_argument("--language-model", default="world:prompter")
    parser.add_argument("--reader", default="world:reader")
    parser.add_argument("--encoder", default="world:clip")
    parser.add_argument("--via", default="here")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--attributes", help="names, separated by commas; default: all that have a link")
    parser.add_argument("--tokens", type=int, help="most tokens of a prompt")
    parser.add_argument("--debiased", action="store_true")
    parser.add_argument("--no-race", action="store_true", help="skip the comparison with a fixed number of images")
    parser.add_argument("--no-words", action="store_true", help="skip words and parts of prompts")
    parser.add_argument("--only-words", action="store_true", help="measure only words: no search, no heads")
    parser.add_argument("--out", default="runs/bench-prompts")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    links = read_links(asked.links)[0] if asked.links else LINKS
    base, control, guide = QUICK if asked.quick else FULL
    linked = f"{base}?links={asked.links}" if asked.quick and asked.links else base
    generators = {"base": asked.generator or linked, "control": asked.control or control}
    whole = config(links, generators, guide, asked)
    if asked.only_words:
        words_alone(whole, links, asked)
        return
    if asked.debiased:
        whole["generators"] |= debiased(whole, asked.out, asked)
    run = c2b_ray.search_prompts(whole, f"{asked.out}/raced", asked.via, print)
    rows = [gain_row(run)] if asked.no_words else [links_row(run, links), gain_row(run)]
    if not asked.no_race:
        heads = {"files": f"{run.path}/heads"} if guide == "heads" else {}
        alone = {**whole, "generators": {"base": generators["base"]}, "methods": ["bgps"], "heads": heads}
        search = {**whole["search"], "weights": [WEIGHT], "raced": False}
        alone |= {"search": search, "associations": None, "modifiers": None}
        rows.append(race_row(run, c2b_ray.search_prompts(alone, f"{asked.out}/fixed", asked.via, print)))
    print("| what | wanted | got |\n|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(f"\ncontrol's gain: {gain(run, 'control')}\n", *method_rows(run), sep="\n")


if __name__ == "__main__":
    main()
