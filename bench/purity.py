"""Simulates cells that differ in the share of images that show their class: intervals and false findings.

    .venv/bin/python bench/purity.py [--runs 200]

The images of a value show the class in .8 to .99 of the cases, and one in ten shows another value. A verifier errs on
both; its errors are known from 50 or 150 images. `pool`: the classifier sees only images that the verifier accepted,
drawn at random.
"""

import argparse

import numpy as np

from c2b_ray.stats import ContrastTest, contrast_test
from c2b_ray.stats.noisy_labels import CalibrationCounts, Corrected, corrected

ON_OTHERS = 0.1  # how often the classifier answers the class on images that do not show it


def noisy(n: int, share: float) -> np.ndarray:
    return np.full((n, n), (1 - share) / (n - 1)) * (1 - np.eye(n)) + np.eye(n) * share


def simulated(random, accuracy, purity, verifier, images, known, pool):
    """Simulates one run: counts of right, wrong and unclassified images, and what is known about the verifier."""
    n = len(accuracy)
    answers = np.zeros((n + 1, n + 1))
    answers[:n, :n], answers[:n, n] = noisy(n, verifier) * verifier, 1 - verifier
    answers[n] = [*np.full(n, (1 - verifier) / n), verifier]
    shown = np.hstack([noisy(n, 0.9) * purity[:, None], 1 - purity[:, None]])
    counts = np.zeros((3, n, n + 1))
    rate = np.append(accuracy, ON_OTHERS)
    for j in range(n):
        size = images * 3 if pool else images
        content = random.choice(n + 1, size, p=shown[j])
        said = np.array([random.choice(n + 1, p=answers[k]) for k in content])
        outcome = np.where(random.random(size) < rate[content], 0, 1)
        if pool:
            drawn = np.flatnonzero(said == j)[:images]
            outcome[~np.isin(np.arange(size), drawn)] = 2
        np.add.at(counts, (outcome, j, said), 1)
    values = np.stack([random.multinomial(known, noisy(n, verifier)[k]) for k in range(n)]).astype(float)
    classes = np.stack([random.multinomial(known, p) for p in ([verifier, 1 - verifier], [1 - verifier, verifier])])
    return counts, CalibrationCounts(values, classes.astype(float))


def scored(scores: Corrected) -> ContrastTest:
    return contrast_test(scores.accuracy, scores.effective, 0.05, covariance=scores.covariance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    print("values verifier known pool  coverage  false findings  ignoring the class  worst cell  strong found")
    for n in (2, 4):
        for verifier in (1.0, 0.95, 0.9):
            for known in (50, 150):
                for pool in (False, True):
                    random = np.random.default_rng(7)
                    held, false, plain, strong = [], [], [], []
                    for _ in range(runs):
                        purity = random.permutation(np.linspace(0.8, 0.99, n))
                        for accuracy in (np.full(n, 0.9), np.r_[np.full(n - 1, 0.95), 0.65]):
                            counts, told = simulated(random, accuracy, purity, verifier, 200, known, pool)
                            found = scored(corrected(counts[0], counts[1], told, unclassified=counts[2]))
                            phi = accuracy - (accuracy.sum() - accuracy) / (n - 1)
                            held.append((found.phi_low <= phi) & (phi <= found.phi_high))
                            if accuracy[0] == accuracy[-1]:
                                false.append(found.p_value.min() * n <= 0.05)
                                right, total = counts[0].sum(axis=1), counts[:2].sum(axis=(0, 2))
                                diag = scored(corrected(np.diag(right), np.diag(total - right), np.eye(n) * 1e6))
                                plain.append(diag.p_value.min() * n <= 0.05)
                            else:
                                strong.append(found.p_value[-1] <= 0.05)
                    cells = np.array(held)
                    print(
                        f"{n:6} {verifier:8} {known:5} {pool!s:5} {cells.mean():8.3f} {np.mean(false):12.3f} "
                        f"{np.mean(plain):18.3f} {cells.mean(axis=0).min():14.3f} {np.mean(strong):12.3f}"
                    )


if __name__ == "__main__":
    main()
