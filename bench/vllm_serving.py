"""Measures tokens per second of the language model deployment on vLLM: requests one at a time, and many at once.

    deployments/vllm-cpu/install.sh && python bench/vllm_serving.py [--config FILE.yaml] [--n 64] [--rounds 5]

The requests are those that audits send first: greedy proposals in JSON, here for classes that are not in the training
data. Each goes through Serve's handle alone. Rounds of either kind take turns, so that a slow phase of the machine
affects both. No prompt is repeated, so the prefix cache only helps with the common beginning of the prompts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from random import Random

import yaml
from transformers import AutoTokenizer

from c2b_ray import prompts
from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.roles import ChatRequest
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.ensure import ensure
from c2b_ray.steps.replies import PROPOSALS_SCHEMA
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.training.lm_tasks import noun, task

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=ROOT / "deployments" / "vllm-cpu.yaml")
    parser.add_argument("--n", type=int, default=64, help="requests at once")
    parser.add_argument("--alone", type=int, default=16, help="requests of a round that are sent one at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--free", action="store_true", help="without a JSON schema")
    args = parser.parse_args()
    [app] = [a for a in yaml.safe_load(args.config.read_text())["applications"] if a["name"] == "language-model"]
    spec = app["args"]["model"]
    tokenizer = AutoTokenizer.from_pretrained(spec.removeprefix("vllm:").partition("?")[0])
    rng = Random(100_000)
    found: dict[str, list[float]] = {"one at a time": [], f"{args.n} at once": []}
    with ensure_ray(num_cpus=2, object_store_mb=200), ensure(language_model=spec, placement=args.config) as served:
        assert served.language_model is not None
        app_name = served.language_model.channel.app
        for number in range(args.rounds + 1):  # the first warms up and does not count
            for kind, requests, at_once in zip(found, (args.alone, args.n), (1, args.n), strict=True):
                calls = [(spec, [_proposal(rng, None if args.free else PROPOSALS_SCHEMA)]) for _ in range(requests)]
                began = time.perf_counter()
                replies = Channel(app_name, in_flight=at_once).call_many("chat", calls)
                seconds = time.perf_counter() - began
                if number:
                    tokens = sum(
                        len(tokenizer(reply.text, add_special_tokens=False)["input_ids"]) for [reply] in replies
                    )
                    found[kind].append(tokens / seconds)
    medians = {kind: statistics.median(rates) for kind, rates in found.items()}
    alone, together = medians.values()
    rounds = {kind: [round(rate) for rate in rates] for kind, rates in found.items()}
    print(json.dumps({"tokens_per_second": rounds, "medians": medians, "ratio": round(together / alone, 2)}, indent=1))


def _proposal(rng: Random, schema: dict[str, object] | None) -> ChatRequest:
    messages = prompts.messages(
        "propose", task=task(rng, CLASSES, held_out=True), target_class=noun(rng, held_out=True)
    )
    return ChatRequest(messages, schema, max_tokens=256, seed=rng.getrandbits(31))


if __name__ == "__main__":
    main()
