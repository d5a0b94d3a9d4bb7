"""The tables of Classifier-to-Bias audits and of comparisons between them: scores and what follows from scores."""

from typing import Annotated, NotRequired, TypedDict

from c2b_ray.tables.path import AnswerColumns
from c2b_ray.tables.rows import NULLABLE, Float32, Int8, Int32, Measured, schema_of


class ScoreRow(TypedDict, total=False):
    """The score of a cell: one value of an attribute, for one class and classifier. Each step of scoring adds its
    columns."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    # What `accuracy`, `phi` and all results of them are values of; null in runs of releases that had accuracy
    # alone. `n` and `correct` count the cell's images and the right answers to them, whatever the metric.
    metric: Annotated[str, NULLABLE]
    n: int
    correct: int
    errors: int  # images of the cell without a prediction; not in n
    accuracy: Measured
    accuracy_low: Measured
    accuracy_high: Measured
    phi: Measured
    phi_low: Measured
    phi_high: Measured
    p_value: Measured
    q_value: Measured
    verdict: str  # for, against, none, undetermined
    paper_verdict: Int8  # 1, -1, 0: |φ| > τ alone
    # Of the test for |φ| ≤ τ, which `none` states; its false discovery rate is controlled as that of findings is.
    none_p_value: Measured
    none_q_value: Measured
    # Orders the findings: φ shrunk towards 0 by the noise of the classifier's cells, or φ on fresh images.
    phi_shrunken: Measured
    # The smallest |φ| that two stages find in four of five audits; null without `screening`.
    detectable: float | None
    phi_confirmed: float | None  # on images drawn for confirmation alone; null without `confirm`
    phi_confirmed_low: float | None
    phi_confirmed_high: float | None
    # How the images' values are known. labels: from the images' labels; captions: from the captions that drew them,
    # unverified; verifier: from a verifier with its own certainty; calibrated: with its measured accuracy.
    basis: Annotated[str, NULLABLE]
    captions: int | None  # captions whose images the cell holds; null for labelled images
    caption_spread: Measured  # standard deviation between captions of one cell; NaN: not known
    clusters: int | None  # clusters, such as cameras, that the images of n come from; null without
    wanted: int | None  # distinct images that the cell should have; null for labelled images
    undecided: Annotated[int, NULLABLE]  # images of n without a single likeliest answer; they count as wrong
    shared: Annotated[int, NULLABLE]  # images of n that other values of the attribute hold as well
    # φ with the cells weighted to one distribution of all other attributes; null where it could not be computed.
    phi_standardised: float | None
    # "attribute: value" of another attribute that nearly the same images show, as far as verified: no image
    # distinguishes their effects. Null where there is none.
    same_as: str | None
    # If images were verified, `accuracy`, `phi` and all results of them are corrected for images that show
    # something else; `n` and `correct` count the drawn images, and these two are uncorrected too.
    accuracy_observed: Measured
    phi_observed: Measured
    repeats: int  # near-duplicates of other images of the cell; not in n
    # Null without verification: shares of the cell's images that show its bias class, with limits, and its class.
    shown: float | None
    shown_low: float | None
    shown_high: float | None
    class_shown: float | None
    # The share of the cell's images that do not show its class, with limits, as predicted from images of the
    # calibration that look like them. Null where images were not drawn from those that a calibrated verifier
    # accepted in an index; NaN where the calibration holds no such image.
    false_accepts: float | None
    false_accepts_low: float | None
    false_accepts_high: float | None
    # φ that follows from how often each class has the attribute's values alone, if answers depended on the class
    # and not on the value. Null for accuracy, which is of one class, and where φ is not beyond τ.
    phi_of_mix: float | None
    doubt: str | None  # why the verdict is withheld, regardless of the numbers; null where it is not
    # Why a cell is undetermined, in a sentence; null elsewhere.
    undetermined_because: str | None
    # Images that each cell needs, with captions in the same proportion; null: settled, or no number suffices.
    images_to_settle: int | None
    mistaken_for: str | None  # the commonest wrong answer, null where there is none
    mistaken: int  # the number of images with that answer
    # The number of images whose answer is the class that the bias class names (such as another class's
    # texture); null where it names none. For the target class itself these are the right answers.
    answered_bias_class: int | None
    # Findings that share their images have one number; the largest |φ| is in group 1. Null where there is no
    # finding.
    group: Int32 | None
    group_reason: str | None  # why the finding is in the group of another one; null for the first of a group


SCORES = schema_of(ScoreRow)


class LabelErrorRow(TypedDict):
    """An image whose label may be wrong."""

    classifier: str
    key: str | None  # the image's name in its source
    label: str  # the class that it is labelled with
    answer: str  # the class that the classifier confidently takes it for
    confidence: float  # the probability of that class
    label_probability: float
    # Of its nearest images, by the encoder: the shares labelled as the answer, and as the image. Null without one.
    neighbours_answer: float | None
    neighbours_label: float | None
    image_id: str


LABEL_ERRORS = schema_of(LabelErrorRow)


class LabelledImageRow(TypedDict):
    """What an image shows, for classifiers that give each label on its own."""

    image_id: str
    classes: list[str]  # those of the audit that it shows, in their order
    attributes: list[str]  # of which it has a value
    bias_classes: list[str]  # the value of each


LABELLED_IMAGES = schema_of(LabelledImageRow)


class LookVectorRow(TypedDict):
    """The descriptors of a picture (`steps.image_properties`), of one length each; null where `error` says why."""

    look_id: str  # hash of image and descriptors
    image_id: str
    texture: list[Float32] | None
    colours: list[Float32] | None
    background: list[Float32] | None
    error: str | None


LOOK_VECTORS = schema_of(LookVectorRow)


class LookRow(TypedDict):
    """How many of a classifier's answers follow a look of the pictures."""

    classifier: str
    look: str  # texture, colours or background
    images: int  # that were answered, each picture once; of many a sample
    follow_class: int  # right, or what most images of the class are called
    compared: int  # the others whose picture was described
    follow_look: int  # of these, those called what their look-alikes are
    expected: float  # how many would be by chance
    share: Measured  # (follow_look − expected) / images
    share_low: Measured
    share_high: Measured
    margin: Measured  # share − follow_class / images
    margin_low: Measured
    margin_high: Measured
    p_value: Measured  # of as many that follow the look, or more, by chance
    established: bool  # whether more answers follow this look than the class
    strongest: bool  # of the established ones: whether no other look is established to be followed by more answers


LOOKS = schema_of(LookRow)


class LookAlike(TypedDict):
    """An image of another class with the same look."""

    image_id: str
    key: str | None
    label: str


class LookAlikesRow(TypedDict):
    """An image whose answer follows its look, of a look that is established."""

    classifier: str
    look: str
    key: str | None  # the image's name in its source
    label: str  # the class that it is labelled with
    answer: str  # which is what its look-alikes are given
    image_id: str
    look_alikes: list[LookAlike]  # of other classes with this answer, nearest first


LOOK_ALIKES = schema_of(LookAlikesRow)


class IntersectionRow(TypedDict):
    """The score of a cell of two attributes at once."""

    classifier: str
    target_class: str
    attribute: str  # "a × b"
    bias_class: str  # "x, y"
    attribute_a: str
    attribute_b: str
    value_a: str
    value_b: str
    n: int
    correct: int
    errors: int
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    phi: float | None  # among all cells of the pair, as for an attribute
    phi_low: float | None
    phi_high: float | None
    phi_p_value: float | None
    phi_q_value: float | None
    expected: float | None  # the accuracy that the two attributes predict separately, in [0, 1]
    interaction: float | None  # accuracy − expected
    interaction_low: float | None
    interaction_high: float | None
    p_value: float | None  # of |interaction| ≤ τ; NaN where the cell is in doubt
    q_value: float | None  # over all cells of all pairs of all classifiers
    verdict: str  # of the interaction: for, against, none, undetermined
    basis: str | None  # how the images' values are known, as in SCORES
    captions: int | None  # captions whose images the cell holds; null for labelled images
    caption_spread: float | None  # standard deviation between captions of one cell; NaN: not known
    repeats: int | None  # near-duplicates of other images of the cell; not in n
    shown: float | None  # estimated share of images that show both values; null without verification
    doubt: str | None  # why the verdict is withheld, regardless of the numbers
    # The finding of the pair (its bias class) that explains this cell. `expected` and its results are computed
    # from cells without findings.
    folded_into: str | None


INTERSECTIONS = schema_of(IntersectionRow)


class PooledRow(TypedDict):
    """The scores of a value over all classes together. q-values and verdicts follow from all rows."""

    classifier: str
    attribute: str
    bias_class: str
    classes: int  # the number of classes whose cells were pooled
    n: int
    correct: int
    accuracy: Measured  # mean of the classes' accuracies, weighted as `stats.pooled` says
    phi: Measured  # mean of the classes' φ, weighted alike
    phi_low: Measured
    phi_high: Measured
    p_value: Measured
    q_value: NotRequired[Measured]  # over all pooled cells of all classifiers
    verdict: NotRequired[str]  # for, against, none, undetermined
    doubt: str | None
    basis: Annotated[str, NULLABLE]  # the weakest of the pooled cells, as in SCORES
    captions: int | None  # captions whose images the pooled cells hold; null for labelled images
    caption_spread: float | None  # the largest between captions of one cell; NaN: not known
    clusters: int | None  # clusters that the images come from, each once; null without


POOLED = schema_of(PooledRow)


class AgreementRow(TypedDict):
    """A cell's φ on retrieved images beside that on generated ones."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    n_retrieve: int | None
    phi_retrieve: float | None
    phi_low_retrieve: float | None
    phi_high_retrieve: float | None
    n_generate: int | None
    phi_generate: float | None
    phi_low_generate: float | None
    phi_high_generate: float | None
    difference: float | None  # φ of generated images minus that of retrieved ones
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    agreement: str  # same, different, undetermined


AGREEMENT = schema_of(AgreementRow)


class ComparisonRow(TypedDict):
    """A cell of two runs, A and B."""

    target_class: str
    attribute: str
    bias_class: str
    n: int  # images drawn by both runs and answered by both classifiers
    unshared: int  # images drawn by only one of the two runs; not in n
    unanswered: int  # drawn by both runs, without an answer by one classifier or both; not in n
    only_a: int  # images that A alone got right
    only_b: int
    accuracy_a: float | None
    accuracy_b: float | None
    difference: float | None  # B minus A, as everywhere below
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    phi_a: float | None
    phi_b: float | None
    phi_difference: float | None
    phi_difference_low: float | None
    phi_difference_high: float | None
    phi_p_value: float | None
    phi_q_value: float | None
    change: str  # better, worse, same, undetermined
    doubt: str | None  # why the change is withheld, regardless of the numbers
    repeats: int | None  # shared images that are near-duplicates of others of the cell; not in n
    refused: int | None  # shared images that do not show class and value according to a verifier; not in n
    # Independent images that would tell as much as the n, which came from few captions.
    effective: float | None
    captions: int | None  # captions whose images are in n; null for labelled images
    caption_spread: float | None  # of the difference, between captions of a cell; NaN: not known
    pairs_to_settle: int | None  # images that would settle an undetermined change; null: none would, or not known


COMPARISON = schema_of(ComparisonRow)


class PooledComparisonRow(TypedDict):
    """A value over all classes, in two runs."""

    attribute: str
    bias_class: str
    classes: int
    n: int
    only_a: int
    only_b: int
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str  # better, worse, same, undetermined
    doubt: str | None
    effective: float | None
    captions: int | None
    caption_spread: float | None  # the largest of a cell


COMPARISON_POOLED = schema_of(PooledComparisonRow)


# The tables of perturbations of an audit's images: which images, the answers to them, and what follows from these.


class PerturbedImageRow(TypedDict):
    """An image that is perturbed."""

    image_id: str
    target_class: str
    # A near-duplicate of an earlier image of its class: answered, and left out of the counts. Null: not yet known.
    repeat: bool | None
    cluster: str | None  # such as the camera; null where it is not known


PERTURBED_IMAGES = schema_of(PerturbedImageRow)


class _PerturbedPredictionOf(TypedDict):
    prediction_id: str  # hash of the perturbed picture, classifier, its revision and label map
    image_id: str  # of the image as it is
    perturbation: str  # such as blur; none: of the image reduced, but unperturbed
    level: Int8  # 1 to 5; 0 unperturbed
    classifier: str
    revision: str


class PerturbedPredictionRow(_PerturbedPredictionOf, AnswerColumns):
    """A classifier's answer to a perturbed image."""


PERTURBED_PREDICTIONS = schema_of(PerturbedPredictionRow)


class PerturbationRow(TypedDict):
    """What a perturbation of one level does to the accuracy on a class."""

    classifier: str
    target_class: str
    perturbation: str
    level: Int8  # 1 to 5
    n: int  # images that were answered both ways
    errors: int  # images without an answer one way or both; not in n
    repeats: int  # near-duplicates of other images of the class; not in n
    correct_unperturbed: int
    correct: int  # perturbed
    only_unperturbed: int  # images that are right unperturbed alone
    only_perturbed: int
    accuracy_unperturbed: float | None
    accuracy_unperturbed_low: float | None
    accuracy_unperturbed_high: float | None
    accuracy: float | None  # perturbed
    accuracy_low: float | None
    accuracy_high: float | None
    difference: float | None  # accuracy, perturbed minus unperturbed, on the same images
    difference_low: float | None
    difference_high: float | None
    p_value: float | None  # of |difference| ≤ τ
    q_value: float | None  # over all classes, perturbations, levels and classifiers
    none_p_value: float | None  # of |difference| ≥ τ, and its q, as in SCORES
    none_q_value: float | None
    # for (better perturbed), against, none, undetermined; never none where the class has no more than τ to lose
    verdict: str
    # Images of the class, in all, that would settle the verdict; null: settled, or no number suffices.
    images_to_settle: int | None
    clusters: int | None  # clusters that the images of n come from; null without
    effective: float | None  # independent images that would tell as much as n
    mistaken_for: str | None  # the commonest wrong answer to perturbed images; null where there is none
    mistaken: int  # the number of images with that answer


PERTURBATIONS = schema_of(PerturbationRow)
"""Adjusted p-values and verdicts are of one family: all rows."""
