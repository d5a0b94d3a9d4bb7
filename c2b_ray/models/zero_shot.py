"""A text-image encoder as a classifier and as a captioner, by the text that is nearest to the image.

    open_clip:ViT-B-32/laion2b_s34b_b79k?labels=names.txt                                  a classifier
    open_clip:local-dir:PATH?labels=bus,boat&template=a photo of a {}.|a drawing of a {}.
    open_clip:ViT-B-32/laion2b_s34b_b79k                                                   a captioner
    open_clip:local-dir:PATH?vocabulary=phrases.txt&template=a photo of {choice}|{choice}

Options of a classifier: labels (a file of names, or names with commas between), template (with {} for the label;
several with | between, whose embeddings are averaged: Radford et al. 2021, section 3.1.4), temperature (by default the
encoder's own `logit_scale`, 100 for most CLIP models), and those of the encoder. The probability of a label is the
softmax, over the labels, of temperature × cosine, as in CLIP. Models trained with a sigmoid (SigLIP) add one bias to
all logits, which cancels in the softmax; their scale does not.

A captioner answers a question likewise (section 3.1.2), among its choices. The texts are the question's, else the
templates with {choice} and, optionally, {question} filled in. For each attribute of the vocabulary a caption names the
phrase that is likelier than all others together, and omits the attribute where there is none. Options: template
(`{choice}` by default), vocabulary (a file like vocabulary.txt), temperature (the model's own logit scale by default),
and those of the encoder. It knows encoders, and nothing of reading or writing sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from c2b_ray.errors import SpecError
from c2b_ray.models import open_clip_encoder
from c2b_ray.models.captioned import among_usable, no_answer, no_caption, probable, scores_among_usable
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import label_fact, numbers, read_labels
from c2b_ray.models.torch_runtime import of_device, with_precision
from c2b_ray.names import a_or_an, repeated_names, without_invisible
from c2b_ray.roles import (
    Answer,
    Blocks,
    CaptionReply,
    Description,
    Floats,
    ModelFact,
    Pixels,
    Question,
    Shape,
    ShapedEncoder,
    TextImageEncoder,
)
from c2b_ray.tables import content_id

TEMPLATE = "a photo of a {}."
TEMPERATURE = 100.0
_ROUNDING = 0.1
_ZERO_SHOT_OPTIONS = ("labels", "template", "temperature")


class ZeroShotClassifier:
    """Cosine similarities to each label's mean embedding, times `temperature`; implements `roles.Classifier`."""

    def __init__(
        self,
        encoder: TextImageEncoder,
        labels: Sequence[str],
        templates: Sequence[str],
        temperature: float,
        facts: tuple[ModelFact, ...] = (),
    ) -> None:
        self.facts = facts
        self._encoder, self.labels, self._temperature = encoder, tuple(labels), temperature
        self.revision = _revision(encoder.revision, labels, templates, temperature)
        texts = encoder.encode_texts([template.format(label) for label in labels for template in templates])
        means = texts.reshape(len(self.labels), len(templates), -1).mean(axis=1)
        self._anchors: Floats = means.astype(np.float32) / np.linalg.norm(means, axis=1, keepdims=True)

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Returns logits, float32 (images, labels). `keys` are ignored."""
        similarities = self._encoder.encode_images(images) @ self._anchors.T
        return (self._temperature * similarities).astype(np.float32)

    @property
    def shape(self) -> Shape | None:
        """The encoder's."""
        return self._encoder.shape if isinstance(self._encoder, ShapedEncoder) else None

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        assert isinstance(self._encoder, ShapedEncoder)
        similarities = self._encoder.embeddings_of_shaped(images) @ self._anchors.T
        return (self._temperature * similarities).astype(np.float32)


def load_classifier(spec: Spec) -> ZeroShotClassifier:
    """Loads the classifier of an encoder's spec with `labels`. Raises SpecError for no labels, one label, or a template
    without {}."""
    settings, inner = _settings(spec)
    encoder = open_clip_encoder.load(inner)
    temperature = _temperature(settings, encoder.logit_scale)
    facts = _facts(spec, settings, temperature, encoder.facts)
    return ZeroShotClassifier(encoder, settings.labels, settings.templates, temperature, facts)


def describe_classifier(spec: Spec) -> Description:
    """Returns the description from the encoder's files."""
    settings, inner = _settings(spec)
    encoder, scale = open_clip_encoder.describe_scaled(inner)
    temperature = _temperature(settings, scale)
    revision = _revision(encoder.revision, settings.labels, settings.templates, temperature)
    facts = _facts(spec, settings, temperature, encoder.facts)
    return Description(revision, settings.labels, of_device=of_device(spec), shape=encoder.shape, facts=facts)


@dataclass(frozen=True)
class _Settings:
    """Settings of a spec; `temperature` None stands for the encoder's own."""

    labels: tuple[str, ...]
    templates: list[str]
    temperature: float | None


def _temperature(settings: _Settings, scale: float) -> float:
    """Returns the factor on cosines: the spec's, else the encoder's, of which 100 is stored with a rounding error."""
    if settings.temperature is not None:
        return settings.temperature
    return TEMPERATURE if abs(scale - TEMPERATURE) < _ROUNDING else scale


def _facts(
    spec: Spec, settings: _Settings, temperature: float, encoder: tuple[ModelFact, ...]
) -> tuple[ModelFact, ...]:
    source = (
        f"?temperature={spec.options['temperature']}" if "temperature" in spec.options else "the model's logit_scale"
    )
    templates = "; ".join(repr(template) for template in settings.templates)
    template_source = "?template=" if "template" in spec.options else "default"
    return (
        *encoder,
        label_fact(spec, settings.labels, None),
        ModelFact("prompts", templates, template_source, option="template"),
        ModelFact("temperature", f"{temperature:.6g}", source, option="temperature"),
    )


def _revision(encoder: str, labels: Sequence[str], templates: Sequence[str], temperature: float) -> str:
    return content_id("zero_shot", encoder, list(labels), list(templates), temperature)


def _settings(spec: Spec) -> tuple[_Settings, Spec]:
    """Returns the spec's settings of labels and templates, and the encoder's spec."""
    options = {name: spec.options[name] for name in _ZERO_SHOT_OPTIONS if name in spec.options}
    labels = _labels(spec, options.get("labels"))
    templates = options.get("template", TEMPLATE).split("|")
    for template in templates:
        if template.count("{}") != 1 or template.replace("{}", "").count("{") + template.replace("{}", "").count("}"):
            raise SpecError(f"{spec.text}: template={template!r} must hold {{}} once, where the label goes")
    inner = replace(spec, options={k: v for k, v in spec.options.items() if k not in _ZERO_SHOT_OPTIONS})
    return _Settings(labels, templates, _stated_temperature(spec)), with_precision(inner)


def _stated_temperature(spec: Spec) -> float | None:
    stated = numbers(spec, "temperature")
    if stated is None:
        return None
    if stated[0] <= 0:
        raise SpecError(f"{spec.text}: temperature={stated[0]} is not above 0")
    return stated[0]


def _labels(spec: Spec, option: str | None) -> tuple[str, ...]:
    if not option:
        raise SpecError(f"{spec.text}: an encoder classifies among labels=NAMES.txt or labels=bus,boat; give them")
    labels = read_labels(option) if Path(option).is_file() else tuple(name.strip() for name in option.split(","))
    labels = tuple(unicodedata.normalize("NFC", without_invisible(label)) for label in labels)
    if not all(labels):
        empty = f"name {labels.index('') + 1} of {len(labels)} is empty"
        raise SpecError(f"{spec.text}: labels={option!r}: {empty}; remove it")
    if len(labels) < 2:
        raise SpecError(f"{spec.text}: labels={option!r} is one name; give two or more")
    if repeated := repeated_names(labels):
        numbers_of = (" and ".join(str(i + 1) for i in places) for places in repeated)
        same = [f"{labels[places[0]]!r} ({number})" for places, number in zip(repeated, numbers_of, strict=True)]
        raise SpecError(
            f"{spec.text}: labels={option!r} has a name more than once: {', '.join(same[:5])}. Their captions are one, "
            "so that nothing tells their images apart; give each a name of its own, such as 'crane bird', 'crane truck'"
        )
    return labels


# `Captioner` from a text-image encoder: answers with the choice, and captions with the phrases of a vocabulary,
# that are nearest to the image.


Vocabulary = Mapping[str, Sequence[str]]
"""Attribute → phrases that continue "a photo of a bus"; an empty phrase says nothing."""

CHOICE_TEMPLATE = "{choice}"
SURE = 0.5
_CAPTIONER_OPTIONS = ("template", "vocabulary", "temperature")
_PLACEHOLDERS = ("choice", "question")
_MOST_TEXTS, _MOST_IMAGES = 20_000, 1_000  # whose embeddings are kept


class ClipCaptioner:
    """Implements `roles.Captioner` and `roles.CaptionScorer`.

    Equal images in a batch and texts met before are encoded once.
    """

    def __init__(
        self, encoder: TextImageEncoder, vocabulary: Vocabulary, templates: Sequence[str], temperature: float
    ) -> None:
        self._encoder, self._vocabulary, self._templates = encoder, vocabulary, tuple(templates)
        self._temperature = temperature
        self.facts: tuple[ModelFact, ...] = tuple(getattr(encoder, "facts", ()))
        self._revision = _captioner_revision(encoder.revision, vocabulary, templates, temperature)
        self._known: dict[str, Floats] = {}
        self._met: dict[tuple[tuple[int, ...], bytes], Floats] = {}

    @property
    def revision(self) -> str:
        return self._revision

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        """Returns captions such as "a photo of a bus, in red, at night": the label and the certain phrases of the
        vocabulary."""
        return among_usable(images, labels, self._captions, no_caption)

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        """Returns the choice whose text is nearest, with the probabilities of all choices."""
        return among_usable(images, questions, self._answers, no_answer)

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        """Returns temperature × cosine of each image and text: the logits of CLIP, not likelihoods; (images, texts)."""

        def scores(usable: Sequence[Pixels]) -> Floats:
            embeddings = self._embedded(texts)
            anchors = np.stack([embeddings[text] for text in texts])
            return np.float32(self._temperature) * (self._seen(usable) @ anchors.T)

        return scores_among_usable(images, texts, scores)

    def _captions(self, images: list[Pixels], labels: list[str]) -> list[CaptionReply]:
        sentences = {
            label: [[_caption_of(label, p) for p in phrases] for phrases in self._vocabulary.values()]
            for label in labels
        }
        embeddings = self._embedded([text for groups in sentences.values() for group in groups for text in group])
        replies = []
        for image_embedding, label in zip(self._seen(images), labels, strict=True):
            if not _noun(label):
                replies.append(CaptionReply(None, "the label is empty"))
                continue
            caption = _caption_of(label, "")
            for phrases, group in zip(self._vocabulary.values(), sentences[label], strict=True):
                result = self._probabilities(image_embedding, np.stack([embeddings[text] for text in group]))
                likeliest = int(np.argmax(result))
                caption = (
                    f"{caption}, {phrases[likeliest]}" if phrases[likeliest] and result[likeliest] > SURE else caption
                )
            replies.append(CaptionReply(caption))
        return replies

    def _answers(self, images: list[Pixels], questions: list[Question]) -> list[Answer]:
        texts = {question: self._texts(question) for question in questions}
        embeddings = self._embedded([text for rows in texts.values() for row in rows for text in row])
        answers = []
        for image_embedding, question in zip(self._seen(images), questions, strict=True):
            means = np.stack([np.mean([embeddings[text] for text in row], axis=0) for row in texts[question]])
            anchors = means / np.linalg.norm(means, axis=1, keepdims=True)
            answers.append(probable(question, self._probabilities(image_embedding, anchors).tolist()))
        return answers

    def _texts(self, question: Question) -> list[list[str]]:
        """Returns for each choice the texts whose mean embedding represents it."""
        if question.texts is not None:
            return [[text] for text in question.texts]
        return [[_filled(t, choice, question.text) for t in self._templates] for choice in question.choices]

    def _probabilities(self, image_embedding: Floats, anchors: Floats) -> NDArray[np.float64]:
        return np.asarray(softmax(self._temperature * (anchors.astype(np.float64) @ image_embedding)))

    def _seen(self, images: Sequence[Pixels]) -> Floats:
        """Returns an embedding per image, and encodes equal images once: several questions about one image, or several
        captions of it, repeat the image in a batch."""
        digests = [(image.shape, blake2b(image.tobytes()).digest()) for image in images]
        new = {digest: i for i, digest in reversed(list(enumerate(digests))) if digest not in self._met}
        rows = self._encoder.encode_images([images[i] for i in new.values()]) if new else ()
        embedding_of_digest = {**self._met, **dict(zip(new, rows, strict=True))}
        self._met = embedding_of_digest if len(embedding_of_digest) <= _MOST_IMAGES else {}
        return np.stack([embedding_of_digest[digest] for digest in digests])

    def _embedded(self, texts: Sequence[str]) -> dict[str, Floats]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        embeddings = (
            {**self._known, **dict(zip(new, self._encoder.encode_texts(new), strict=True))} if new else self._known
        )
        self._known = embeddings if len(embeddings) <= _MOST_TEXTS else {}
        return embeddings


def load_captioner(spec: Spec, vocabulary: Vocabulary | None = None) -> ClipCaptioner:
    """Loads the captioner of an `open_clip:` spec.

    Raises SpecError for a template without {choice} and for a file that is no vocabulary. `vocabulary`: the phrases of
    captions unless the spec names a file; by default everyday things.
    """
    settings = _captioner_settings(spec, vocabulary)
    encoder = open_clip_encoder.load(settings.encoder)
    temperature = encoder.logit_scale if settings.temperature is None else settings.temperature
    return ClipCaptioner(encoder, settings.vocabulary, settings.templates, temperature)


def describe_captioner(spec: Spec, vocabulary: Vocabulary | None = None) -> Description:
    """Returns the description from the encoder's files."""
    settings = _captioner_settings(spec, vocabulary)
    encoder, scale = open_clip_encoder.describe_scaled(settings.encoder)
    temperature = scale if settings.temperature is None else settings.temperature
    revision = _captioner_revision(encoder.revision, settings.vocabulary, settings.templates, temperature)
    return Description(revision, facts=encoder.facts)


@dataclass(frozen=True)
class _CaptionerSettings:
    """Settings of a spec. `encoder` is a spec; `temperature` None stands for the encoder's own."""

    encoder: Spec
    vocabulary: Vocabulary
    templates: list[str]
    temperature: float | None


def _captioner_revision(encoder: str, vocabulary: Vocabulary, templates: Sequence[str], temperature: float) -> str:
    lists = [[name, *phrases] for name, phrases in vocabulary.items()]
    return content_id("clip_captioner", encoder, lists, list(templates), temperature, SURE)


def _captioner_settings(spec: Spec, vocabulary: Vocabulary | None) -> _CaptionerSettings:
    spec.options_among((*_CAPTIONER_OPTIONS, *open_clip_encoder.OPTIONS))
    options = {name: spec.options[name] for name in _CAPTIONER_OPTIONS if name in spec.options}
    templates = options.get("template", CHOICE_TEMPLATE).split("|")
    for template in templates:
        placeholders = re.findall(r"\{(.*?)\}", template)
        if "choice" not in placeholders or not set(placeholders) <= set(_PLACEHOLDERS):
            raise SpecError(f"{spec.text}: template={template!r} must hold {{choice}}, and may hold {{question}}")
    if "vocabulary" in options:
        vocabulary = read_vocabulary(options["vocabulary"], spec.text)
    elif vocabulary is None:
        vocabulary = _parsed(files("c2b_ray.models").joinpath("vocabulary.txt").read_text(encoding="utf-8"), spec.text)
    encoder = replace(spec, options={k: v for k, v in spec.options.items() if k not in _CAPTIONER_OPTIONS})
    return _CaptionerSettings(encoder, vocabulary, templates, _stated_temperature(spec))


def read_vocabulary(path: str | Path, spec: str) -> Vocabulary:
    """Reads the attributes and phrases of a file; SpecError names the first invalid line."""
    try:
        return _parsed(Path(path).read_text(encoding="utf-8-sig"), f"{spec}: vocabulary {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{spec}: vocabulary {path}: {error}") from error


def _parsed(text: str, source: str) -> Vocabulary:
    result: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, phrases_text = line.partition(":")
        phrases = [" ".join(phrase.split()) for phrase in phrases_text.split("|")]
        if not colon or not name.strip() or name.strip() in result or len(set(phrases)) < max(2, len(phrases)):
            raise SpecError(
                f"{source}, line {number}: expected `name: phrase | phrase`, two phrases or more, each once, of a "
                f"name that is new, not {line!r}"
            )
        result[name.strip()] = phrases
    if not result:
        raise SpecError(f"{source}: no line like `light: in daylight | at night`")
    return result


def _noun(label: str) -> str:
    return " ".join(label.replace("_", " ").split())


def _caption_of(label: str, phrase: str) -> str:
    noun = _noun(label)
    text = f"a photo of {a_or_an(noun)} {noun}"
    return f"{text}, {phrase}" if phrase else text


def _filled(template: str, choice: str, question: str) -> str:
    placeholders = {"{choice}": choice, "{question}": question}
    return re.sub(r"\{choice\}|\{question\}", lambda match: placeholders[match.group()], template)
