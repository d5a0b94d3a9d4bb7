"""The report of a run of `c2b clip-bias`: one self-contained page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from c2b_ray.audits.clip_bias import figures, wording
from c2b_ray.audits.clip_bias.facts import Facts, is_known, measure_of, read_facts
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.measure import ALL
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Answers,
    Article,
    Block,
    Cell,
    Columns,
    Figure,
    Findings,
    FoundRow,
    Frame,
    Items,
    Page,
    Paragraph,
    Section,
    Strips,
    Table,
    TableRow,
    Terms,
    made,
)
from c2b_ray.report.method import Row, method_of, times
from c2b_ray.report.page import MOST, STYLES, Answer
from c2b_ray.report.pictures import thumbnails
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.report.words import Column, Sentence, Span
from c2b_ray.storage.files import write_bytes
from c2b_ray.tables.clip_bias import BiasRow, ConvergenceRow, GroupExampleRow, LocalityRow, ModelPairRow, TransferRow

MOST_FINDINGS, MOST_BIASES, MOST_PAIRS, MOST_CORRELATIONS = 40, 300, 40, 30
COMMAND = "c2b clip-bias clip_bias.yaml --out RUN"
_COUNTS = {
    "clip_bias": "Biases",
    "transfer": "Correlations of transfer",
    "locality": "Correlations of local with global",
    "rates": "Rates",
    "model_pairs": "Comparisons of models",
    "gaps": "Gaps",
    "convergence": "Pairs of spaces",
    "clusters": "Images in groups or none",
}


def page(facts: Facts, pictures: Mapping[str, str]) -> Page:
    """Returns the page. `pictures`: a data: URI by dataset and key of an example."""
    manifest = facts.manifest
    status = str(manifest.get("status", "finished"))
    date = words.moment(str(manifest.get("finished") or manifest.get("created") or ""))
    unfinished = Paragraph(f"This run is not finished (status: {clean(status)}).", "notice")
    method = method_of(manifest, _settings(facts), _COUNTS, COMMAND)
    return Page(
        title=f"Bias of {words.plural(len(facts.names), 'CLIP model')}",
        suffix="",
        kicker="Social bias of CLIP models, and its transfer",
        byline=[date] if date else [],
        head=(*([] if status == "finished" else [unfinished]), Answers(answers(facts))),
        sections=(
            _found(facts),
            *_groups(facts, pictures),
            *_maps(facts),
            _transfer(facts),
            *_models(facts),
            *_gaps(facts),
            *_spaces(facts),
            _numbers(facts),
            made(method, "clip_bias.yaml", *_method(facts)),
        ),
        styles=(*STYLES, "clip_bias.css"),
    )


# The answer: who is favoured, and by how much.


FEWEST = 10
"""Images of a value whose rate a headline may name: a rate of one image says nothing."""


def answers(facts: Facts) -> tuple[Answer, ...]:
    """Returns who is favoured, and by how much: of each attribute the strongest bias beyond chance, over all images
    where there is one, the surest first; without any that none is established."""
    established = [bias for bias in facts.biases if facts.is_established(bias)]
    established.sort(key=lambda bias: (bias["group"] != ALL, bias["q_value"], bias["expected"] - bias["value"]))
    strongest_of: dict[tuple[str, str], BiasRow] = {}
    for bias in established:
        strongest_of.setdefault((bias["attribute"], bias["metric"]), bias)
    if strongest_of:
        return tuple(_answer(bias, facts) for bias in list(strongest_of.values())[:MOST])
    measured = sum(map(is_known, facts.biases))
    if not measured:
        return (Answer("undetermined", "◇", (Span("No bias could be measured."),), (), "numbers"),)
    line = f"None of {words.plural(measured, 'bias', 'biases')} is beyond what chance alone gives."
    return (Answer("undetermined", "◇", (Span(line),), ("That does not show that there is none.",), "numbers"),)


def _answer(bias: BiasRow, facts: Facts) -> Answer:
    where = clean(bias["dataset"])
    where += "" if bias["group"] == ALL else f", {wording.group(bias['group'])}"
    evidence = (
        f"{wording.metric(bias['metric'])} {wording.amount(bias['value'])}, {_confidence(facts)} interval "
        f"{wording.amounts(bias['value_low'], bias['value_high'])}; chance alone gives "
        f"{wording.amount(bias['expected'])} (q {words.small_probability(bias['q_value'])}), "
        f"{words.plural(bias['n'], 'image')} of {where}."
    )
    is_rate = not bias["metric"].startswith("max_skew@")  # whose note says more than that a value is rare
    rarity = (f"{clean(bias['note'][:1].upper() + bias['note'][1:])}.",) if is_rate and bias["note"] else ()
    return Answer("against", "▼", _favoured(bias, facts.name(bias["model"]), facts), (evidence, *rarity), "numbers")


def _favoured(bias: BiasRow, model: str, facts: Facts) -> Sentence:
    """Returns the bias in words: on which values it is most and least often right, or how over-represented one is."""
    score = bias["metric"].removeprefix("kl_")
    rates = [
        rate
        for rate in facts.rates
        if all(rate[name] == bias[name] for name in ("model", "dataset", "attribute", "group"))
        and rate["metric"] == score
        and math.isfinite(rate["rate"])
        and rate["n"] >= FEWEST
    ]
    attribute = clean(bias["attribute"])
    if len(rates) > 1 and score != "cider":  # which is no share of right answers
        best, worst = (choose(rates, key=lambda rate: rate["rate"]) for choose in (max, min))
        return (
            Span(f"{model} favours "),
            Span(f"{attribute}: {clean(best['attribute_value'])}", strong=True),
            Span(
                f": it is right on {words.percent(best['rate'])} of {words.plural(best['n'], 'such image')} "
                f"({wording.score(score)}), against "
            ),
            Span(
                f"{words.percent(worst['rate'])} of {words.count(worst['n'])} of {clean(worst['attribute_value'])}",
                strong=True,
            ),
            Span("."),
        )
    if bias["metric"].startswith("max_skew@"):  # a logarithm of a ratio of shares
        return _over_represented(bias, model, attribute)
    return (
        Span(f"{model}: {wording.metric(bias['metric'])} of "),
        Span(attribute, strong=True),
        Span(f" is {wording.amount(bias['value'])}, where chance alone gives {wording.amount(bias['expected'])}."),
    )


def _over_represented(bias: BiasRow, model: str, attribute: str) -> Sentence:
    times_usual = f"{math.exp(bias['value']):.2f} times as frequent"
    usual = f" as among all, on average; chance alone gives {math.exp(bias['expected']):.2f} times."
    texts, favoured_texts = bias["texts"] or 0, bias["favoured_texts"] or 0
    if bias["favoured"] is not None and favoured_texts > texts / 2 > 0:
        return (
            Span(f"{model} favours "),
            Span(f"{attribute}: {clean(bias['favoured'])}", strong=True),
            Span(
                f", the most over-represented value for {words.count(favoured_texts)} of "
                f"{words.plural(texts, 'neutral text')}. Among the images that it ranks first for a text, the most "
                "over-represented value is "
            ),
            Span(times_usual, strong=True),
            Span(usual),
        )
    apart = " for some neutral texts, and another for others" if texts else " over the others"
    return (
        Span(f"{model} favours one value of "),
        Span(attribute, strong=True),
        Span(f"{apart}: among the images that it ranks first it is "),
        Span(times_usual, strong=True),
        Span(usual),
    )


def _confidence(facts: Facts) -> str:
    return words.percent(1 - facts.config.alpha)


# What was found, and the groups of images.


def _found(facts: Facts) -> Section:
    rows = findings(facts)
    if not rows:
        nothing = (
            "No bias is beyond what chance alone gives. That does not show that there is none: the intervals below say "
            "how large one could be."
        )
        return Section("What was found", [Paragraph(nothing)], "found", "What was found")
    text = (
        f"Biases beyond chance at a false discovery rate of {words.decimal(facts.config.alpha)}; first those that a "
        f"group has and all images together do not. In brackets the {_confidence(facts)} interval."
    )
    more = _more(len(rows) - MOST_FINDINGS)
    blocks = [Paragraph(text, "intro"), Findings(rows[:MOST_FINDINGS], filtered="findings", more=more)]
    return Section("What was found", blocks, "found", "What was found")


def _more(count: int) -> str:
    return f"And {count} more, in the run’s clip_bias.parquet." if count > 0 else ""


def findings(facts: Facts) -> list[FoundRow]:
    """Returns biases with q at most alpha, purely local ones first, then the largest beyond chance."""
    over_all_images = {(bias["model"], measure_of(bias)): bias for bias in facts.biases if bias["group"] == ALL}
    established = [bias for bias in facts.biases if facts.is_established(bias)]
    hiding = [_hiding(bias, over_all_images.get((bias["model"], measure_of(bias))), facts) for bias in established]
    pairs = sorted(
        zip(established, hiding, strict=True),
        key=lambda pair: (pair[1] is None, pair[0]["q_value"], -pair[0]["value"]),
    )
    return [_finding(bias, hidden_by, facts) for bias, hidden_by in pairs]


def _hiding(bias: BiasRow, over_all_images: BiasRow | None, facts: Facts) -> BiasRow | None:
    """Returns the bias over all images where a group has it and all images do not, beyond chance."""
    if bias["group"] == ALL or over_all_images is None or facts.is_established(over_all_images):
        return None
    return over_all_images


def _finding(bias: BiasRow, hidden_by: BiasRow | None, facts: Facts) -> FoundRow:
    model = facts.name(bias["model"])
    sentence = (
        f"{' (local alone)' if hidden_by else ''}: {wording.metric(bias['metric'])} of {clean(bias['attribute'])} is "
        f"{wording.amount(bias['value'])} on {wording.group(bias['group'])} of {clean(bias['dataset'])} "
        f"({wording.amounts(bias['value_low'], bias['value_high'])}; chance alone gives "
        f"{wording.amount(bias['expected'])})."
    )
    beneath = ""
    if hidden_by is not None:
        limits = wording.amounts(hidden_by["value_low"], hidden_by["value_high"])
        beneath = f"Over all images it is {wording.amount(hidden_by['value'])} ({limits}), which chance explains."
    elif bias["note"]:
        beneath = f"{clean(bias['note'][0].upper() + bias['note'][1:])}."
    spans = (Span(model, strong=True), Span(sentence))
    return FoundRow("against", "▼", spans, [beneath] if beneath else [], data={"model": model})


def _groups(facts: Facts, pictures: Mapping[str, str]) -> list[Section]:
    by_group: dict[tuple[str, str], list[GroupExampleRow]] = {}
    for example in facts.examples:
        by_group.setdefault((example["dataset"], example["group"]), []).append(example)
    column = facts.config.groups.column
    text = (
        f"Images of one value of the column {clean(column)}. What is shown is drawn at random from each."
        if column
        else "Images that lie in one cluster of every model: each model’s embeddings are clustered by k-means, and the "
        "combinations of clusters, one of each model, that share most images are the groups. What is shown is drawn at "
        "random from each."
    )
    sizes = facts.manifest.get("groups") or {}
    articles = [
        _group(dataset, group, int(sizes.get(dataset, {}).get(group, 0)), examples, pictures)
        for (dataset, group), examples in by_group.items()
    ]
    return [Section("Groups", [Paragraph(text), *articles], "groups", "Groups")] if articles else []


def _group(
    dataset: str, group: str, size: int, examples: Sequence[GroupExampleRow], pictures: Mapping[str, str]
) -> Article:
    frames = [
        Frame(source, clean(image["key"]), [words.shortened(clean(image["caption"]), 80)] if image["caption"] else [])
        for image in examples
        if (source := pictures.get(f"{dataset} {image['key']}"))
    ]
    title = (Span(f"{clean(dataset)}, {wording.group(group)} "), Span(words.plural(size, "image"), style="by"))
    return Article(title, [Strips([frames])] if frames else [], style="examples")


# Local and global bias, transfer, models, gaps, spaces: the paper's tables and figures.


def _figures(several: Sequence[Figure]) -> Columns:
    return Columns(several, "figures")


def _q(q_value: float, holds: bool) -> Cell:
    return Cell((Span(words.small_probability(q_value), strong=holds),))


def _maps(facts: Facts) -> list[Section]:
    maps = figures.maps(facts)
    if not maps:
        return []
    text = (
        "Each map has the models from left to right by descending bias over all images; the stronger the colour, the "
        "more biased, between the map’s least and largest value. A frame marks a bias beyond chance (q ≤ "
        f"{words.decimal(facts.config.alpha)}); a dashed cell is not known, and its title says why."
    )
    rows = [_local_row(row, facts) for row in facts.locality if math.isfinite(row["rho"])]
    columns = [
        *(Column(name) for name in ("Attribute", "Metric", "Dataset", "Group")),
        *(Column(name, number=True) for name in ("ρ", "p", "q", "Models")),
    ]
    table = Table(columns, rows, sortable=True, filtered="locality", most=20)
    locality = Article("Rank correlation of local with global bias over models", [table])
    blocks = [Paragraph(text), _figures(maps), *([locality] if rows else [])]
    return [Section("Local and global bias", blocks, "maps", "Local and global")]


def _local_row(row: LocalityRow, facts: Facts) -> TableRow:
    attribute = clean(row["attribute"])
    cells = (
        attribute,
        wording.metric(row["metric"]),
        clean(row["dataset"]),
        wording.group(row["group"]),
        Cell(words.signed(row["rho"]), [words.signed_range(row["rho_low"], row["rho_high"])]),
        words.small_probability(row["p_value"]),
        _q(row["q_value"], facts.is_established(row)),
        words.count(row["n_models"]),
    )
    return TableRow(cells, data={"attribute": attribute})


def _transfer(facts: Facts) -> Section:
    blocks: list[Block] = [Paragraph(_transfer_line(facts))]
    if distribution := figures.distribution(facts):
        blocks.append(_figures(distribution))
    if strongest := figures.strongest(facts):
        text = "The correlations of |ρ| 0.3 or more with the least p. A point is a model."
        blocks += [Paragraph(text, "legend"), _figures(strongest)]
    if rows := [_transfer_row(row, facts) for row in facts.correlations[:MOST_CORRELATIONS]]:
        columns = [
            *(Column(name) for name in ("Pre-training", "Downstream", "View")),
            *(Column(name, number=True) for name in ("ρ", "p", "q", "Models")),
        ]
        blocks.append(Table(columns, rows, sortable=True, filtered="transfer", most=15))
    return Section("From pre-training to downstream bias", blocks, "transfer", "Transfer")


def _transfer_line(facts: Facts) -> str:
    correlations, alpha = facts.correlations, words.decimal(facts.config.alpha)
    if not facts.transfer:
        return "No results of models built on the CLIPs were named, so nothing is said of transfer."
    if not correlations:
        return "No correlation is known: it takes three models that have both biases, and biases that differ."
    established = sum(map(facts.is_established, correlations))
    if not established:  # the largest of many correlations may be chance
        return (
            f"None of {words.plural(len(correlations), 'correlation')} is established at q ≤ {alpha}: whether bias "
            "before goes with bias after is open."
        )
    best = correlations[0]
    return (
        f"{words.count(established)} of {words.plural(len(correlations), 'correlation')} established at q ≤ {alpha}. "
        f"The strongest: ρ = {words.signed(best['rho'])} ({words.signed_range(best['rho_low'], best['rho_high'])}), p "
        f"{words.small_probability(best['p_value'])}, over {words.plural(best['n_models'], 'model')}."
    )


def _transfer_row(row: TransferRow, facts: Facts) -> TableRow:
    before = wording.bias(row["pretraining_metric"], row["pretraining_attribute"])
    cells = (
        Cell(before, [clean(row["pretraining_dataset"])]),
        Cell(wording.bias(row["downstream_metric"], row["downstream_attribute"]), [clean(row["downstream_dataset"])]),
        row["view"],
        Cell(words.signed(row["rho"]), [words.signed_range(row["rho_low"], row["rho_high"])]),
        words.small_probability(row["p_value"]),
        _q(row["q_value"], facts.is_established(row)),
        words.count(row["n_models"]),
    )
    return TableRow(cells, data={"metric": before})


def _models(facts: Facts) -> list[Section]:
    plots = figures.selection(facts)
    if not plots:
        return []
    apart = sorted((pair for pair in facts.pairs if pair["verdict"] == "apart"), key=lambda pair: pair["q_value"])
    text = (
        "Transfer was studied on the coloured models: those between the bars, where a window was named, else all. "
        f"{_pairs_line(len(apart), facts)}"
    )
    columns = [
        *(Column(name) for name in ("Model", "Other model", "Attribute", "Metric", "Dataset")),
        *(Column(name, number=True) for name in ("Difference", "q")),
    ]
    table = Table(
        columns,
        [_pair_row(pair, facts) for pair in apart[:MOST_PAIRS]],
        caption="Two models whose bias differs beyond chance, on the same images",
        sortable=True,
        filtered="pairs",
        most=10,
    )
    blocks = [Paragraph(text), _figures(plots), *([table] if apart else [])]
    return [Section("Models: performance and bias", blocks, "models", "Models")]


def _pairs_line(apart: int, facts: Facts) -> str:
    if not facts.pairs:
        return ""
    return (
        f"{words.count(apart)} of {words.plural(len(facts.pairs), 'comparison')} of two models tell them apart at q ≤ "
        f"{words.decimal(facts.config.alpha)}: the bias of one is larger by more than "
        f"{words.decimal(facts.config.margin)} of MaxSkew, or as much of KL, whatever chance does. In the others the "
        "order of the two may be chance, or matters little."
    )


def _pair_row(pair: ModelPairRow, facts: Facts) -> TableRow:
    model = facts.name(pair["model_a"])
    cells = (
        model,
        facts.name(pair["model_b"]),
        clean(pair["attribute"]),
        wording.metric(pair["metric"]),
        clean(pair["dataset"]),
        Cell(wording.amount(pair["difference"]), [wording.amounts(pair["difference_low"], pair["difference_high"])]),
        words.small_probability(pair["q_value"]),
    )
    return TableRow(cells, data={"model": model})


def _gaps(facts: Facts) -> list[Section]:
    plots = figures.quadrants(facts)
    text = (
        "For attributes with two values: how much better a model does on one than on the other, before and after "
        f"downstream training, with {_confidence(facts)} whiskers. If the one brought the other, all points would lie "
        "in the quadrants of one colour."
    )
    return [Section("Gaps before and after", [Paragraph(text), _figures(plots)], "gaps", "Gaps")] if plots else []


def _spaces(facts: Facts) -> list[Section]:
    by_stage = {
        stage: [pair for pair in facts.spaces if pair["stage"] == stage and math.isfinite(pair["similarity"])]
        for stage in ("before", "after")
    }
    if not all(by_stage.values()):
        return []
    columns = [
        Column("Spaces"),
        *(Column(name, number=True) for name in ("Mean", "Standard deviation", "Mean, centred", "Least")),
        Column("Least alike"),
    ]
    text = (
        "A space whose images all lie in one narrow cone has pairwise cosines near 1, and is similar to any other such "
        "space whatever it tells apart. Centred, each space’s mean cosine is taken off first: only an order of pairs "
        "that two spaces share makes them similar then."
    )
    blocks = [
        Paragraph(_spaces_line(by_stage["before"], by_stage["after"])),
        Table(columns, [_stage_row(stage, pairs, facts) for stage, pairs in by_stage.items()]),
        Paragraph(text, "legend"),
        _figures(figures.similarities(by_stage, facts)),
    ]
    return [Section("Embedding spaces before and after", blocks, "spaces", "Spaces")]


def _stage_row(stage: str, pairs: Sequence[ConvergenceRow], facts: Facts) -> tuple[str, ...]:
    values = np.array([pair["similarity"] for pair in pairs])
    worst = min(pairs, key=lambda pair: pair["similarity"])
    return (
        f"{stage} training",
        f"{values.mean():.3f}",
        f"{values.std():.3f}",
        f"{np.mean([pair['centred'] for pair in pairs]):.3f}",
        f"{worst['similarity']:.3f} ({worst['low']:.3f} to {worst['high']:.3f})",
        f"{facts.name(worst['model_a'])} and {facts.name(worst['model_b'])}",
    )


def _spaces_line(before: Sequence[ConvergenceRow], after: Sequence[ConvergenceRow]) -> str:
    similarities = np.array([pair["similarity"] for pair in before])
    spread = float(similarities.std())
    earlier = {(pair["model_a"], pair["model_b"]): pair for pair in before}
    matched = [(earlier[key], pair) for pair in after if (key := (pair["model_a"], pair["model_b"])) in earlier]
    more_alike = sum(later["low"] > pair["high"] for pair, later in matched)
    line = f"{words.count(more_alike)} of {words.plural(len(matched), 'pair')} grew more alike, beyond both intervals."
    if spread > 0:
        z = (min(pair["similarity"] for pair in after) - float(similarities.mean())) / spread
        where = "above" if z >= 0 else "below"
        line += f" The least alike pair after training is {abs(z):.2f} standard deviations {where} the mean before."
    return line


# Every bias, and how the run was made.


def _numbers(facts: Facts) -> Section:
    text = (
        f"Every bias, its {_confidence(facts)} interval, and what chance alone gives on average: KL and MaxSkew are "
        "never below 0 and above it however fair the model. MaxSkew’s test looks to one side and its interval to both, "
        "so that one may begin at 0 where q is small."
    )
    columns = [
        *(Column(name) for name in ("Model", "Attribute", "Metric", "On")),
        *(Column(name, number=True) for name in ("Bias", "By chance", "q", "Images")),
    ]
    ordered = sorted(facts.biases, key=lambda bias: (not is_known(bias), bias["q_value"] if is_known(bias) else 1.0))
    table = Table(
        columns,
        [_bias_row(bias, facts) for bias in ordered[:MOST_BIASES]],
        sortable=True,
        filtered="numbers",
        most=25,
        more=_more(len(ordered) - MOST_BIASES),
    )
    return Section("In numbers", [Paragraph(text, "legend"), table], "numbers", "In numbers")


def _bias_row(bias: BiasRow, facts: Facts) -> TableRow:
    model, attribute = facts.name(bias["model"]), clean(bias["attribute"])
    cells = (
        model,
        attribute,
        wording.metric(bias["metric"]),
        Cell(f"{clean(bias['dataset'])}, {wording.group(bias['group'])}", [clean(bias["note"] or "")]),
        Cell(wording.amount(bias["value"]), [wording.amounts(bias["value_low"], bias["value_high"])]),
        wording.amount(bias["expected"]),
        _q(bias["q_value"], facts.is_established(bias)),
        words.count(bias["n"]),
    )
    return TableRow(cells, data={"model": model, "attribute": attribute})


def _method(facts: Facts) -> list[Block]:
    """Returns what stands before the settings: counts, notes, the metrics, and what was done with them."""
    notes = [clean(str(note)) for note in facts.manifest.get("notes") or ()]
    columns = [Column(name) for name in ("Metric", "Of", "Bias as", "Task")]
    return [
        Paragraph(_tally(facts), "tally"),
        Paragraph(_scale(facts), "scale"),
        *([Items(notes)] if notes else []),
        Table(columns, METRICS, style="facts table1", caption="The metrics (Ramos et al. 2025, Table 1)"),
        Terms(TERMS),
    ]


def _tally(facts: Facts) -> str:
    measured = [bias for bias in facts.biases if is_known(bias)]
    established, moved = (sum(map(facts.is_established, rows)) for rows in (measured, facts.correlations))
    biases = f"{words.count(established)} of {words.plural(len(measured), 'bias', 'biases')} beyond chance"
    if not facts.correlations:
        return biases
    return f"{biases}, {words.count(moved)} of {words.plural(len(facts.correlations), 'correlation')} established"


def _scale(facts: Facts) -> str:
    datasets = dict.fromkeys(bias["dataset"] for bias in facts.biases)
    unknown = [bias for bias in facts.biases if not is_known(bias)]
    line = f"{words.plural(len(facts.names), 'model')}, {words.listed([clean(name) for name in datasets])}."
    if unknown:
        reasons = Counter(bias["note"] or "" for bias in unknown)
        line += (
            f" {words.plural(len(unknown), 'bias is', 'biases are')} not known: {clean(reasons.most_common(1)[0][0])}."
        )
    return line


def _settings(facts: Facts) -> list[Row]:
    config = facts.config
    groups, chance, leakage = config.groups, config.chance, config.leakage
    return [
        ("R@k", words.count(config.recall_k)),
        ("A hit", config.hit),
        ("MaxSkew@k", words.count(config.skew_k)),
        ("… share of images at most", words.decimal(config.skew_share)),
        ("MaxSkew’s rule", config.skew_rule),
        ("Clusters", words.count(groups.k)),
        ("Images of a group", words.count(groups.least)),
        ("Clusters may serve", {"shared": "several groups", "once": "one group"}[groups.reuse]),
        ("Independent pairs count", {"code": "0", "formula": "−1"}[config.amplification]),
        ("LIC guesses by", clean_setting(leakage.guesser)),
        ("… folds", words.count(leakage.folds)),
        ("… draws of folds", words.count(leakage.seeds)),
        ("Permutations", words.count(chance.permutations)),
        ("Bootstrap samples", words.count(chance.resamples)),
        ("α, false discovery rate", words.decimal(config.alpha)),
        ("Two models differ by more than, of MaxSkew", words.decimal(config.margin)),
        ("Seed", words.count(config.seed)),
        ("Run", clean(str(facts.manifest.get("run_id")))),
        *times(facts.manifest),
    ]


METRICS = (
    ("KL of R@k", "the CLIP model", "unequal performance", "from an image to its caption"),
    ("MaxSkew@k", "the CLIP model", "spurious correlation", "from a neutral text to images"),
    ("KL of VQA accuracy", "what is built on it", "unequal performance", "answers to questions"),
    ("KL of CIDEr", "what is built on it", "unequal performance", "captions"),
    ("Directional bias amplification", "what is built on it", "spurious correlation", "answers to questions"),
    ("LIC", "what is built on it", "spurious correlation", "captions"),
)
TERMS = (
    "**KL.** Of the groups’ mean scores, scaled to sum to 1, from equal shares (Eqs.\u00a01 and 3). From finite "
    "samples it is above 0 on average however fair the model, so it is tested by permuting groups over images, with "
    "Welch’s statistic, and its interval is the KL of all rates that this test does not reject (Fieller’s), and that a "
    "group whose scores are nearly all 0 may have by a score test: it begins at 0 wherever equality is not rejected. "
    "Questions and captions of one image stay together. Captions that are spelt alike are one text to be retrieved.",
    "**MaxSkew.** Eq.\u00a02, averaged over the descriptions; the share over all ranked images is the ideal one. In "
    "small datasets and groups k is cut to a share of the images. Groups are shuffled over images, all rankings at "
    "once; the interval says which multiples of the observed skews the average can come from, and which skew that all "
    "descriptions share.",
    "**Images.** They are taken as independent, except that copies of a picture count as one. Several photographs of "
    "one person are alike without being copies: with them, intervals are too narrow and p and q too small.",
    "**Bias amplification.** Eqs.\u00a04 to 6, without questions whose answers are binary, numbers, or not among the "
    "most frequent. Chance is truth and prediction changing places, an image at a time, with the directions taken "
    "anew.",
    "**LIC.** How well the attribute is guessed from captions with its words masked, less the same for people’s "
    "captions, one an image, which lose the words that the captioner never uses. Guessers are trained on all folds but "
    "the caption’s own.",
    "**Groups.** An image has one cluster in each model, so it lies in the intersection of exactly one combination of "
    "clusters; sorting images by their clusters finds every combination exactly.",
    "**Correlations.** Spearman’s ρ over models. p is exact up to 8 models, then from 19\u2009999 random orders; "
    "intervals are Bonett and Wright’s. q is Benjamini and Hochberg’s: over all biases of the run, over all "
    "correlations of transfer, over all of local with global bias, and over all comparisons of models. They are about "
    "these images and these models: models trained anew with another seed would differ by more than the intervals of "
    "two models on the same images say.",
)


def write_report(run: ClipBiasRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    facts = read_facts(run)
    pictures = {
        f"{example['dataset']} {example['key']}": data
        for example in facts.examples
        if (data := example["bytes"]) is not None
    }
    write_bytes(run.report, page(facts, thumbnails(pictures)).html().encode())
    return run.report
