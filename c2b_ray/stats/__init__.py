"""Metrics: pure functions of numbers, a file per family.

They know NumPy and SciPy alone; nothing of images, models, tables, Ray or runs. `scipy.stats` and `scipy.optimize` take
a while to import, which they do where a function first names them (`import scipy`, then `scipy.stats.norm`): most
commands need neither. Every docstring states formula, shapes, range, what 0 means, what empty input gives, and the
paper; where a paper and its code disagree it names both and the default.
"""

from c2b_ray.stats.amplification import directional_bias_amplification, leakage
from c2b_ray.stats.clusters import effective_images, effective_pairs
from c2b_ray.stats.contrasts import (
    contrast_counts,
    contrast_interval,
    contrast_none_p_values,
    contrast_p_values,
    contrast_reach,
)
from c2b_ray.stats.distances import frechet_distance, kernel_distance
from c2b_ray.stats.interaction import (
    crossed,
    expected_accuracies,
    interaction_interval,
    interaction_none_p_values,
    interaction_p_values,
    interactions,
)
from c2b_ray.stats.intervals import (
    ContrastTest,
    benjamini_hochberg,
    bias_score_interval,
    bias_score_p_values,
    contrast_test,
    equivalence_p_values,
    p_value_of_limit,
    rogan_gladen,
    selected_confidence,
    verdicts,
    wilson_interval,
)
from c2b_ray.stats.outcomes import (
    Many,
    bias_outcomes,
    keyword_scores,
    match_threshold,
    outcome_difference,
    outcome_shares,
    recall_of_matches,
    verdict_agreement,
)
from c2b_ray.stats.paired import (
    error_consistency,
    mcnemar_p_values,
    paired_difference,
    paired_difference_interval,
    paired_difference_p_values,
    paired_equivalence_p_values,
    phi_difference,
    phi_difference_interval,
    phi_difference_p_values,
)
from c2b_ray.stats.pooled import PooledScores, pooled_bias_scores, shrunken
from c2b_ray.stats.rate_evidence import RateBatch, RateEvidence, e_q_values, more_evidence, no_evidence
from c2b_ray.stats.rates import Trials, failure_rates, mann_whitney, rate_ratios
from c2b_ray.stats.retrieval import recall_at
from c2b_ray.stats.sample_size import images_to_settle, paired_images_to_settle
from c2b_ray.stats.scores import Floats, Ints, bias_score_deviations, bias_scores, kl_from_uniform, paper_verdicts
from c2b_ray.stats.sequential import (
    chances_to_settle,
    confidence_sequence,
    evidence_paths,
    rounds_to_settle,
    sequential_evidence,
    sequential_p_values,
    sequential_verdicts,
)
from c2b_ray.stats.skew import max_skew, ndkl

__all__ = [
    "ContrastTest",
    "Floats",
    "Ints",
    "Many",
    "PooledScores",
    "RateBatch",
    "RateEvidence",
    "Trials",
    "benjamini_hochberg",
    "bias_outcomes",
    "bias_score_deviations",
    "bias_score_interval",
    "bias_score_p_values",
    "bias_scores",
    "chances_to_settle",
    "confidence_sequence",
    "contrast_counts",
    "contrast_interval",
    "contrast_none_p_values",
    "contrast_p_values",
    "contrast_reach",
    "contrast_test",
    "crossed",
    "directional_bias_amplification",
    "e_q_values",
    "effective_images",
    "effective_pairs",
    "equivalence_p_values",
    "error_consistency",
    "evidence_paths",
    "expected_accuracies",
    "failure_rates",
    "frechet_distance",
    "images_to_settle",
    "interaction_interval",
    "interaction_none_p_values",
    "interaction_p_values",
    "interactions",
    "kernel_distance",
    "keyword_scores",
    "kl_from_uniform",
    "leakage",
    "mann_whitney",
    "match_threshold",
    "max_skew",
    "mcnemar_p_values",
    "more_evidence",
    "ndkl",
    "no_evidence",
    "outcome_difference",
    "outcome_shares",
    "p_value_of_limit",
    "paired_difference",
    "paired_difference_interval",
    "paired_difference_p_values",
    "paired_equivalence_p_values",
    "paired_images_to_settle",
    "paper_verdicts",
    "phi_difference",
    "phi_difference_interval",
    "phi_difference_p_values",
    "pooled_bias_scores",
    "rate_ratios",
    "recall_at",
    "recall_of_matches",
    "rogan_gladen",
    "rounds_to_settle",
    "selected_confidence",
    "sequential_evidence",
    "sequential_p_values",
    "sequential_verdicts",
    "shrunken",
    "verdict_agreement",
    "verdicts",
    "wilson_interval",
]
