"""What the name of a column in a table of predictions says that it holds: one list of words, for messages and choice.

It knows words and not what is in a column; `prediction_columns` decides by both.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from c2b_ray.names import without_invisible

Kind = Literal["prediction", "truth", "label", "probability", "no label", "other"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FILES = _set(
    "file files key path filename filenames filepath imagefile imagefilename imagepath imagename image img imgfile "
    "imgpath imgname relpath relativepath fullpath photo picture"
)
"""Names of the column of files, without case, spaces and underscores."""

PREDICTED = _set(
    "pred preds predicted prediction predictions predict predlabel predclass ypred yhat hat output outputs answer "
    "answers answered guess guessed inferred inference top1 top5 argmax response responses reply assigned detected "
    "detection classified classification estimate estimated hypothesis"
)
TRUE = _set(
    "true truth ytrue gt groundtruth ground gold golden actual actuals target targets targetclass annotation "
    "annotations annotated annotator expected reference real manual oracle truelabel trueclass"
)
CLASS = _set("label labels class classes classname labelname category categories cls tag y")
PROBABLE = _set(
    "prob probs probability probabilities proba probas confidence confidences conf score scores softmax certainty "
    "likelihood"
)
OUTCOMES = _set("correct iscorrect right wrong match matches hit error is")
"""With these a column tells whether an answer was right, and not what it was."""

NO_LABELS = _set(
    "split fold subset partition set phase dataset id ids imageid sampleid rowid uid uuid row rank index idx number no "
    "num n count width height size area bytes filesize depth channels aspect loss entropy margin latency time "
    "seconds ms duration runtime timestamp date datetime year month day correct iscorrect right wrong match hit url "
    "link caption text description note notes comment source model classifier version epoch step seed md5 sha1 sha256 "
    "hash phash weight age lat lon latitude longitude x1 y1 x2 y2 xmin ymin xmax ymax bbox box accuracy acc "
    "uncertainty brightness blur contrast sharpness temperature"
)
"""Names that a label hardly has, without case, spaces and underscores."""

PANDAS = re.compile(r"^$|^unnamed:?[ _]?\d+(_level_\d+)?$|^__index_level_\d+__$", re.IGNORECASE)
"""Names of the row numbers that pandas writes where nobody asks for them."""


def form_of(name: str) -> str:
    """Returns the name in lower case without spaces, underscores, hyphens and dots."""
    return "".join(_words(name))


def kind_of(name: str) -> Kind:
    """Returns what a column of texts or whole numbers is by its name. Columns that tell whether an answer was right are
    no labels, nor are probabilities of the true class."""
    words = set(_words(name)) | {form_of(name)}
    if words & OUTCOMES:
        return "no label" if not words & CLASS else "truth"
    if words & PROBABLE:
        return "no label" if words & TRUE else "probability"
    if words & PREDICTED or {"top", "1"} <= words:
        return "prediction"
    if words & TRUE:
        return "truth"
    if words & CLASS:
        return "label"
    return "no label" if form_of(name) in NO_LABELS or PANDAS.match(name.strip()) else "other"


def is_file(name: str) -> bool:
    return form_of(name) in FILES


def is_suspect(name: str) -> bool:
    """Returns whether a column of numbers from 0 to 1 has a name that a label hardly has: one of `NO_LABELS`, or of
    words for predictions, truths and probabilities alone. One with a number, such as `label_0`, may be a label's."""
    if form_of(name) in NO_LABELS | FILES or PANDAS.match(name.strip()):
        return True
    known = (PREDICTED | TRUE | CLASS | PROBABLE | OUTCOMES | {"max", "model", "classifier", "image", "top"}) - {"y"}
    return not re.search(r"\d$", name.strip()) and set(_words(name)) <= known


def _words(name: str) -> list[str]:
    text = unicodedata.normalize("NFC", without_invisible(name))
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)  # predictedLabel
    text = re.sub(r"(?<=[^\W\d])(?=\d+$)", " ", text) if not re.search(r"(?i)top\d$|md5$|sha\d+$", text) else text
    return [word for word in re.split(r"[\W_]+", text.lower()) if word]
