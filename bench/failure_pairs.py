"""The failure rates that Wiles et al. 2022 print: of baseline and caption, in percent, with their ratio.

Our copy of the text lacks some of the rates. A missing rate is computed from the other one and the printed ratio
(`derived`). Draws scale with the rates, so that only the ratio matters to the comparison.
"""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    name: str
    baseline: float  # percent
    caption: float  # percent
    derived: str = ""

    @property
    def rates(self) -> tuple[float, float]:
        return self.caption / 100, self.baseline / 100

    @property
    def ratio(self) -> float:
        return self.caption / self.baseline

    @property
    def papers_draws(self) -> float:
        """The expected draws until 20 failures on either side (section 4.1)."""
        p1, p0 = self.rates
        return 20 / p1 + 20 / p0


TABLE_1 = [
    Pair("Persian cat/snow leopard", 0.00022, 0.0032),
    Pair("fly/bee", 0.0014, 0.72),
    Pair("crayfish/chainlink fence", 0.00047, 1.73),
]
TABLE_1_ANY = [Pair("Persian cat/any", 0.11, 0.64), Pair("fly/any", 0.48, 4.11), Pair("crayfish/any", 0.93, 6.31)]

TABLE_3 = [
    Pair("robin/hummingbird", 0.0032, 7.35),
    Pair("african chameleon/agama", 0.15, 1.01),
    Pair("harvestman/umbrella", 0.45, 1.32),
    Pair("scorpion/crayfish", 0.0042, 0.13),
    Pair("jellyfish/torch", 0.14, 0.45),
    Pair("sea anemone/daisy", 0.32, 0.32 * 4.2, "caption"),
    Pair("flatworm/hook", 0.61, 0.61 * 2.6, "caption"),
    Pair("snail/conch", 0.039, 0.88),
    Pair("snail/hermit crab", 0.10 / 12.2, 0.10, "baseline"),
    Pair("flamingo/pelican", 0.023 / 37.6, 0.023, "baseline"),
    Pair("flamingo/albatross", 0.081, 1.30),
    Pair("oystercatcher/albatross", 0.0025, 0.52),
    Pair("sea lion/killer whale", 4.31 / 31.3, 4.31, "baseline"),
    Pair(
        "bee/rock crab", 0.087, 0.18, "baseline"
    ),  # the printed ratio 2.1 gives .0857; .087 rounds to 2.1 too, and is harder
    Pair("cabbage butterfly/hair slide", 0.099, 1.98),
    Pair("capuchin/gorilla", 0.011, 0.84),
    Pair("acoustic guitar/vacuum", 0.20, 1.02),
    Pair("airliner/minibus", 0.16, 3.05),
    Pair("apron/lab coat", 3.57 / 8.1, 3.57, "baseline"),
    Pair("balloon/ping-pong ball", 0.53, 17.86),
    Pair("lighthouse/flagpole", 0.095, 2.12),
    Pair("lighthouse/submarine", 0.041, 12.5),
    Pair("chain/swing", 1.22, 12.5),
    Pair("doormat/band aid", 0.94, 5.68),
    Pair("envelope/ambulance", 0.21, 0.21 * 60.0, "caption"),
    Pair("envelope/ping-pong ball", 1.04, 75.0),
    Pair("envelope/police van", 6.94 / 11.7, 6.94, "baseline"),  # the text has .510, but 6.94 / 11.7 is .593
    Pair("feather boa/maltese dog", 4.59, 41.67),
    Pair("flagpole/sailboat", 0.19, 2.19),
    Pair("jeep/snowplow", 0.30, 17.86),
    Pair("kimono/lab coat", 0.69, 2.84),
    Pair("lighter/candle", 5.37, 41.67),
    Pair("obelisk/projectile", 0.14, 1.09),
    Pair("saltshaker/spotlight", 1.02, 13.89),
    Pair("banana/toucan", 0.0058, 0.047),
    Pair("custard apple/mask", 4.46 / 14.0, 4.46, "baseline"),
]
TABLE_4 = [Pair("fly/bee, ViT-B/32", 0.0002, 0.02278), Pair("fly/bee, ViT-B/8", 0.0002, 0.0027)]

TARGETS = [*TABLE_1, *TABLE_3, *TABLE_4]
EVERY = [*TARGETS, *TABLE_1_ANY]
