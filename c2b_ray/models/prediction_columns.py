"""Decides which columns of a table of predictions hold the files, the answers and the probabilities.

A column's name says what it may be (`prediction_files.kind_of`), its content whether it is. Where two columns may be
one thing, the table is refused by name, and an option of the spec says which is meant: a wrong column gives wrong
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import SourceError, SpecError, nearest
from c2b_ray.models.prediction_files import (
    PANDAS,
    PREDICTED,
    Kind,
    a_fraction,
    in_unit,
    is_file,
    is_number,
    is_suspect,
    is_text,
    kind_of,
    numbers_of,
    off,
    whole,
)
from c2b_ray.names import normalise
from c2b_ray.roles import Floats

OPTIONS = ("file", "prediction", "probability", "ignore")
REMEDY = "say which with ?prediction=COLUMN, or rename the columns"
WHOLE_SUM, OTHER_SUM, ROUNDED_SUM = 2e-5, 1e-4, 0.01
"""Rows of probabilities sum to 1 within the first, and beyond the second they do not; within the third where they were
rounded to two or three digits."""


@dataclass(frozen=True)
class PredictionColumns:
    """The columns by what they hold. `answer`: of predicted labels, or None; `labels`: of probabilities, one a label,
    where there is no `answer`. `aside`: column → why it is not used. `assumed`: no name says that `answer` is one."""

    file: str
    answer: str | None
    probability: str | None = None
    labels: tuple[str, ...] = ()
    aside: Mapping[str, str] = field(default_factory=dict)
    assumed: bool = False


def choose(
    path: str, table: pa.Table, options: Mapping[str, str], labels: Sequence[str] = (), scores: bool = False
) -> PredictionColumns:
    """Returns the choice. `labels`: of the classifier, where they are known; columns that are called as they are hold
    their probabilities. `scores`: whether each probability is of a label on its own, so that no sum tells the columns
    of labels from others. Raises SpecError for an option that names no column, SourceError where it is not clear which
    column is meant, or where there is none."""
    table = _without_ignored(path, table, options)
    file = _file(path, table, options)
    if table.num_columns < 2 or len(table) == 0:
        raise SourceError(f"{path}: expected rows with a column 'file' and predictions; it has {table.column_names}")
    choice = _Choice(path, table, file, options)
    if labels and set(labels) <= set(table.column_names) - {file} and "prediction" not in options:
        return choice.of_labels(labels)
    return choice.of_scores() if scores else choice.made()


class _Choice:
    def __init__(self, path: str, table: pa.Table, file: str, options: Mapping[str, str]) -> None:
        self._path, self._table, self._file, self._options = path, table, file, options
        others = [name for name in table.column_names if name != file]
        self._numbers = {name: values for name in others if (values := numbers_of(table[name])) is not None}
        self._unit = [name for name, values in self._numbers.items() if in_unit(values)]
        kinds: dict[Kind, list[str]] = {}
        for name in others:
            kinds.setdefault("other" if self._is_fraction(name) else kind_of(name), []).append(name)
        self._kinds, self._rest = kinds, others

    def made(self) -> PredictionColumns:
        if "prediction" in self._options:
            return self._long(self._options["prediction"])
        if predictions := self._alike(self._kinds.get("prediction", [])):
            if len(predictions) > 1:
                self._unclear(predictions, "may hold the answers")
            return self._beside_probabilities(predictions[0]) or self._long(predictions[0])
        labels, truths = self._alike(self._kinds.get("label", [])), self._kinds.get("truth", [])
        if "probability" not in self._options:
            if labels and (choice := self._beside_probabilities(labels[0])) is not None:
                return choice
            if not labels and self._wide_columns():
                return self._wide(self._wide_columns())
        if len(labels) == 1 and not truths:
            return self._of_label(labels[0])
        if unclear := [*labels, *truths]:
            self._unclear(unclear, "may hold the truth, and none is named as the prediction")
        return self._wide(self._wide_columns())

    def of_labels(self, labels: Sequence[str]) -> PredictionColumns:
        """Returns the choice of the columns that the classifier's labels name, in their order."""
        for name in labels:
            if name not in self._unit:
                self._check_no_label(name)
                self._fail(f"column {name!r} is {self._table[name].type}, expected probabilities")
        return PredictionColumns(self._file, None, labels=tuple(labels), aside=self._aside(set(labels)))

    def of_scores(self) -> PredictionColumns:
        """Returns the choice where each probability is of a label on its own."""
        if "prediction" in self._options or self._kinds.get("prediction"):
            return self.made()
        columns = self._wide_columns()
        if not columns:
            self._no_predictions()
        for name in self._rest:
            if name not in self._unit and not PANDAS.match(name.strip()):
                self._check_no_label(name)
        if suspects := [name for name in columns if is_suspect(name)]:
            self._fail(
                f"is {_listed(suspects)} a label's probability? Its name is another thing's; leave it out with "
                f"?ignore={','.join(suspects)}, or list all labels with ?labels=PATH"
            )
        return PredictionColumns(self._file, None, labels=tuple(columns), aside=self._aside(set(columns)))

    def _of_label(self, name: str) -> PredictionColumns:
        """Returns the choice of a column that is called a label, which may be the truth: only where nothing beside it
        says that the table is one of images rather than answers."""
        choice = self._long(name)
        fractions = [other for other in self._unit if self._is_fraction(other) and kind_of(other) == "other"]
        if choice.probability is not None and not fractions:
            self._refuse_truth_of_two(name, choice.probability)
            return choice
        if others := [other for other in choice.aside if not PANDAS.match(other.strip())]:
            self._fail(
                f"is {name!r} the answer or the truth? Beside {', '.join(map(repr, others))} it may be either; say "
                f"?prediction={name}, or call it 'prediction'"
            )
        return PredictionColumns(choice.file, name, aside=choice.aside, assumed=True)

    def _refuse_truth_of_two(self, name: str, probability: str) -> None:
        """Raises where probabilities below ½ stand beside labels 0 and 1, one a file: of a likeliest of two none is."""
        texts = {str(value) for value in self._table[name].drop_null().unique().to_pylist()}
        low = self._numbers[probability][~np.isnan(self._numbers[probability])].min(initial=1.0)
        single = pc.count_distinct(self._table[self._file]).as_py() == len(self._table)
        if single and low < 0.5 and {text.lower() for text in texts} <= {"0", "1", "true", "false"}:
            self._fail(
                f"{probability!r} is as low as {low:.3g}, and that of the likelier of two labels is not below 0.5: "
                f"{name!r} may be the truth, and {probability!r} that of label 1; give a column of each label's "
                f"probability, or say ?prediction={name}"
            )

    def _long(self, answer: str) -> PredictionColumns:
        values = self._numbers.get(answer)
        if values is not None and not whole(values):
            self._fail(f"column {answer!r} holds numbers such as {a_fraction(values):g}, and no labels; {REMEDY}")
        option = self._options.get("probability")
        names = [option] if option else [n for n in self._kinds.get("probability", []) if n != answer]
        names += [] if option else [n for n in self._unit if kind_of(n) == "probability" and n not in (*names, answer)]
        if len(names) > 1:
            self._fail(
                f"columns {_listed(names)} may hold the probability of {answer!r}; say which with ?probability=COLUMN, "
                "or leave one out with ?ignore=COLUMN"
            )
        if names and names[0] not in self._numbers:
            self._fail(f"column {names[0]!r} is {self._table[names[0]].type}, expected the answer's probability")
        read_columns = {answer, *names}
        return PredictionColumns(self._file, answer, names[0] if names else None, aside=self._aside(read_columns))

    def _beside_probabilities(self, answer: str) -> PredictionColumns | None:
        """Returns the choice of a column for each label where there are such beside a column of labels: probabilities
        say what a label says, and more. None where there are none. Raises where the two contradict each other."""
        columns = [name for name in self._unit if kind_of(name) == "other" or self._is_fraction(name)]
        columns = [name for name in columns if name != answer and kind_of(name) != "probability"]
        if len(columns) < 2:
            return None
        predicted = kind_of(answer) == "prediction"
        answers = {normalise(str(value)) for value in self._table[answer].drop_null().unique().to_pylist()}
        names_answers = answers <= set(map(normalise, columns))
        if not names_answers and (predicted or off(self._sums(columns)) > WHOLE_SUM):
            return None
        choice = self._wide([name for name in self._unit if name in columns or kind_of(name) == "probability"])
        if predicted:
            self._refuse_contradiction(answer, choice.labels)
        return choice

    def _refuse_contradiction(self, answer: str, labels: Sequence[str]) -> None:
        likeliest = np.argmax(np.nan_to_num(self._stacked(labels)), axis=1)
        for row, text in enumerate(self._table[answer].cast(pa.string()).to_pylist()):
            if text and normalise(text) != normalise(labels[likeliest[row]]):
                self._fail(
                    f"row {row + 1}: {answer!r} is {text!r}, and the likeliest label is {labels[likeliest[row]]!r}; "
                    f"say ?prediction={answer}, or leave it out with ?ignore={answer}"
                )

    def _wide_columns(self) -> list[str]:
        return [name for name in self._unit if not PANDAS.match(name.strip())]

    def _wide(self, columns: Sequence[str]) -> PredictionColumns:
        """Returns the choice of a column for each label. Numbers that are no probabilities, and columns with names that
        no label has, are asked about unless the sums of probabilities tell that they are none."""
        if not columns:
            self._no_predictions()
        for name in self._rest:
            if name not in self._unit and not PANDAS.match(name.strip()):
                self._check_no_label(name)
        columns = [name for name in columns if not np.isnan(self._numbers[name]).all()] or list(columns)
        suspects = [name for name in columns if is_suspect(name)]
        if suspects and off(self._sums(columns)) > WHOLE_SUM:
            columns = self._without(suspects, columns)
        self._refuse_odd_one(columns)
        return PredictionColumns(self._file, None, labels=tuple(columns), aside=self._aside(set(columns)))

    def _without(self, suspects: Sequence[str], columns: Sequence[str]) -> list[str]:
        """Returns the columns of labels, as the sums of the rows tell. Raises where they tell nothing."""
        labels = [name for name in columns if name not in suspects]
        off_all, off_labels = (off(self._sums(subset)) if subset else np.inf for subset in (columns, labels))
        if off_all <= ROUNDED_SUM < off_labels:
            return list(columns)
        if off_labels <= WHOLE_SUM or off_labels <= ROUNDED_SUM < off_all:
            return labels
        return self._fail(
            f"is {_listed(suspects)} a label's probability? Its name is another thing's, and the rows' sums do not "
            f"tell. Leave it out with ?ignore={','.join(suspects)}, or list all labels with ?labels=PATH"
        )

    def _refuse_odd_one(self, columns: Sequence[str]) -> None:
        sums = self._sums(columns)
        if len(columns) < 3 or len(sums) < 2 or off(sums) < OTHER_SUM:
            return
        for name in columns:
            if off(sums - np.nan_to_num(self._numbers[name])) <= WHOLE_SUM:
                self._fail(
                    f"without column {name!r} the probabilities of every row sum to 1: it is no label's; leave it out "
                    f"with ?ignore={name}"
                )

    def _check_no_label(self, name: str) -> None:
        values = self._numbers.get(name)
        if values is None:
            text = self._table[name].drop_null()
            number = next((value for value in text.to_pylist() if is_number(value)), None)
            if number is not None:
                self._fail(
                    f"column {name!r} is {text.type}, expected probabilities; it has numbers such as {number!r} and "
                    f"other texts too. Mend it, or leave it out with ?ignore={name}"
                )
            return
        out_of_range = (values < 0) | (values > 1 + 1e-4)
        row = int(np.argmax(out_of_range))
        self._fail(
            f"row {row + 1}: {values[row]:g} is no probability, in column {name!r} (logits? give their softmax; no "
            f"label? leave the column out with ?ignore={name})"
        )

    def _no_predictions(self) -> NoReturn:
        others = [n for n in self._rest if not PANDAS.match(n.strip())]
        if not others:
            self._fail(f"expected rows with a column 'file' and predictions; it has {self._table.column_names}")
        for name in others:
            if name in self._numbers:
                self._check_no_label(name)
        kind = self._table[others[0]].type
        self._fail(
            f"column {others[0]!r} is {kind}, expected probabilities; or name the column of predicted labels: "
            f"?prediction={others[0]}, or call it 'prediction'"
        )

    def _sums(self, columns: Sequence[str]) -> Floats:
        return np.nansum(self._stacked(columns), axis=1, dtype=np.float64)  # type: ignore[no-any-return]

    def _stacked(self, columns: Sequence[str]) -> Floats:
        return np.stack([self._numbers[name] for name in columns], axis=1)

    def _is_fraction(self, name: str) -> bool:
        """Returns whether the column holds numbers between 0 and 1, so that it names no label."""
        values = self._numbers.get(name)
        return values is not None and not whole(values) and in_unit(values)

    def _alike(self, names: list[str]) -> list[str]:
        """Returns the first of columns that are equal row by row."""
        texts = [self._table[name].cast(pa.string()) for name in names]
        return names[:1] if names and all(text.equals(texts[0]) for text in texts) else names

    def _aside(self, used: set[str]) -> dict[str, str]:
        descriptions = {"truth": "the truth", "label": "a label, of which the table does not say that it is the answer"}
        return {n: descriptions.get(kind_of(n), "no prediction") for n in self._rest if n not in used}

    def _unclear(self, names: Sequence[str], problem: str) -> NoReturn:
        self._fail(
            f"columns {_listed(names)} {problem}; {REMEDY}. Names of answers hold a word such as "
            f"{', '.join(sorted(PREDICTED)[::8])}"
        )

    def _fail(self, problem: str) -> NoReturn:
        raise SourceError(f"{self._path}: {problem}")


def _file(path: str, table: pa.Table, options: Mapping[str, str]) -> str:
    for option in ("file", "prediction", "probability"):
        if option in options and options[option] not in table.column_names:
            hint = nearest(options[option], table.column_names)
            raise SpecError(f"table:{path}: {option}={options[option]!r} is no column; {hint}")
    if "file" in options:
        return options["file"]
    names = [n for n in table.column_names if is_file(n) and n != options.get("prediction") and is_text(table[n])]
    if not names:
        raise SourceError(
            f"{path}: expected rows with a column 'file' and predictions; it has {table.column_names}. Name the column "
            "of files with ?file=COLUMN"
        )
    if any(not table[name].cast(pa.string()).equals(table[names[0]].cast(pa.string())) for name in names):
        raise SourceError(f"{path}: columns {_listed(names)} may name the files; say which with ?file=COLUMN")
    return str(names[0])


def _without_ignored(path: str, table: pa.Table, options: Mapping[str, str]) -> pa.Table:
    ignored = [options["ignore"]] if options.get("ignore") in table.column_names else []
    ignored = ignored or [name.strip() for name in options.get("ignore", "").split(",") if name.strip()]
    for name in ignored:
        if name not in table.column_names:
            raise SpecError(f"table:{path}: ignore={name!r} is no column; {nearest(name, table.column_names)}")
    if repeated := next((n for n in table.column_names if table.column_names.count(n) > 1), None):
        raise SourceError(f"{path}: two columns are called {repeated!r}; rename one")
    return table.drop_columns(ignored)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(map(repr, names[:-1])), repr(names[-1])]) if len(names) > 1 else repr(names[0])
