"""Says how causes of failures were searched for among labelled images, and which would have been found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.drawing import SEARCH, TEST
from c2b_ray.audits.failures.labelled_claims import Claims, Parts
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.steps.clusters_of_images import ClusterSums
from c2b_ray.steps.discovery.labelled_power import POWERS, SHARES, Searched, least_rates
from c2b_ray.steps.discovery.value_sets import MOST_COLUMNS, MOST_SETS
from c2b_ray.store.failures_run import CauseSearch, LabelReach


def reach_of(config: FailuresConfig, parts: Parts, suggested: Claims, hypotheses: pa.Table) -> CauseSearch:
    """`hypotheses`: the run's rows of `schemas.HYPOTHESES`."""
    searches = suggested.searches
    tried = np.array([one.search.tried for one in searches.values()], np.int64).reshape(-1, MOST_COLUMNS)
    findings = hypotheses["verdict"].to_pylist().count("failure")
    keys = list(dict.fromkeys((name, label) for name, label, _ in searches))
    labels = [_searched(config, parts, suggested, *key) for key in keys]
    tested = len(suggested.claims)
    by_share = {
        share: least_rates([one for one, _ in labels], share, tested, findings, config.alpha, config.smallest_ratio)
        for share in SHARES
    }
    return CauseSearch(
        columns=len(parts.answered.columns),
        most_columns=MOST_COLUMNS,
        tried=tried.sum(axis=0).tolist(),
        not_extended=sum(one.search.not_extended for one in searches.values()),
        tested=tested,
        powers=list(POWERS),
        labels=[
            LabelReach(
                classifier=name,
                label=label,
                images=images,
                usual=one.usual,
                least=[
                    {"share": share, "rates": [None if np.isnan(rate) else float(rate) for rate in rates[at]]}
                    for share, rates in by_share.items()
                ],
            )
            for at, ((name, label), (one, images)) in enumerate(zip(keys, labels, strict=True))
        ],
    )


def _searched(
    config: FailuresConfig, parts: Parts, suggested: Claims, classifier: str, label: str
) -> tuple[Searched, int]:
    """Returns what search and test had of one label, for failures of any kind or else of its first target, and its
    images in both. Where images come in clusters, the test had as many as tell as much if independent."""
    key = next((key for key in suggested.searches if key == (classifier, label, None)), None) or next(
        key for key in suggested.searches if key[:2] == (classifier, label)
    )
    answered, known = parts.answered, parts.answers.known[classifier]
    failed = parts.answers.towards(classifier, key[2])
    searched, tested = (
        answered.once(answered.of_label(label) & known & answered.of_part(part)) for part in (SEARCH, TEST)
    )
    images = int(searched.sum()), int(tested.sum())
    worth = images[1]
    if answered.clusters is not None and worth:
        names, cluster = np.unique(answered.clusters[tested], return_inverse=True)
        failures, of_cluster = np.bincount(cluster, failed[tested]), np.bincount(cluster)
        sums = ClusterSums(names, failures[None].astype(np.float64), of_cluster[None].astype(np.float64))
        worth = int(sums.effective(1 - config.alpha)[0])
    one = suggested.searches[key]
    of_label = Searched(
        images[0],
        worth,
        usual=(int((failed & (searched | tested)).sum()) + 0.5) / (sum(images) + 1),
        penalty=one.search.penalty,
        least_excess=min(found.excess for found in one.found) if len(one.found) == MOST_SETS else -np.inf,
    )
    return of_label, sum(images)
