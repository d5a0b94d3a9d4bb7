"""`Captioner` from a text-image encoder: answers with the choice, and captions with the phrases of a vocabulary, that
are nearest to the image.

    open_clip:ViT-B-32/laion2b_s34b_b79k
    open_clip:local-dir:PATH?vocabulary=phrases.txt&template=a photo of {choice}|{choice}

A choice's probability is the softmax, over the question's choices, of temperature × cosine of image and text (Radford
et al. 2021, section 3.1.2). The texts are the question's, else the templates with {choice} and, optionally, {question}
filled in; several embeddings are averaged. For each attribute of the vocabulary a caption names the phrase that is
likelier than all others together, and omits the attribute where there is none.

Options: template (`{choice}` by default), vocabulary (a file like vocabulary.txt), temperature (the model's own logit
scale by default), and those of the encoder. It knows encoders, and nothing of reading or writing sentences.
"""

from __future__ import annotations

import re
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
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import numbers
from c2b_ray.models.text.captioned import among_usable, no_answer, no_caption, probable, scores_among_usable
from c2b_ray.names import a_or_an
from c2b_ray.roles import Answer, CaptionReply, Description, Floats, ModelFact, Pixels, Question, TextImageEncoder
from c2b_ray.tables import content_id

Vocabulary = Mapping[str, Sequence[str]]
"""Attribute → phrases that continue "a photo of a bus"; an empty phrase says nothing."""

TEMPLATE = "{choice}"
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
        self._revision = _revision(encoder.revision, vocabulary, templates, temperature)
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
        return scores_among_usable(images, texts, lambda usable: self._similarities(usable, texts))

    def _similarities(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        embeddings = self._embedded(texts)
        return np.float32(self._temperature) * (self._seen(images) @ np.stack([embeddings[text] for text in texts]).T)

    def _captions(self, images: list[Pixels], labels: list[str]) -> list[CaptionReply]:
        sentences = {
            label: [[_said(label, p) for p in phrases] for phrases in self._vocabulary.values()] for label in labels
        }
        embeddings = self._embedded([text for groups in sentences.values() for group in groups for text in group])
        replies = []
        for image_embedding, label in zip(self._seen(images), labels, strict=True):
            if not _noun(label):
                replies.append(CaptionReply(None, "the label is empty"))
                continue
            caption = _said(label, "")
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


def load(spec: Spec, vocabulary: Vocabulary | None = None) -> ClipCaptioner:
    """Loads the captioner of an `open_clip:` spec.

    Raises SpecError for a template without {choice} and for a file that is no vocabulary. `vocabulary`: the phrases of
    captions unless the spec names a file; by default everyday things.
    """
    settings = _settings(spec, vocabulary)
    encoder = open_clip_encoder.load(settings.encoder)
    temperature = encoder.logit_scale if settings.temperature is None else settings.temperature
    return ClipCaptioner(encoder, settings.vocabulary, settings.templates, temperature)


def describe(spec: Spec, vocabulary: Vocabulary | None = None) -> Description:
    """Returns the description from the encoder's files."""
    settings = _settings(spec, vocabulary)
    encoder, scale = open_clip_encoder.describe_scaled(settings.encoder)
    temperature = scale if settings.temperature is None else settings.temperature
    revision = _revision(encoder.revision, settings.vocabulary, settings.templates, temperature)
    return Description(revision, facts=encoder.facts)


@dataclass(frozen=True)
class _Settings:
    """Settings of a spec. `encoder` is a spec; `temperature` None stands for the encoder's own."""

    encoder: Spec
    vocabulary: Vocabulary
    templates: list[str]
    temperature: float | None


def _revision(encoder: str, vocabulary: Vocabulary, templates: Sequence[str], temperature: float) -> str:
    lists = [[name, *phrases] for name, phrases in vocabulary.items()]
    return content_id("clip_captioner", encoder, lists, list(templates), temperature, SURE)


def _settings(spec: Spec, vocabulary: Vocabulary | None) -> _Settings:
    spec.options_among((*_CAPTIONER_OPTIONS, *open_clip_encoder.OPTIONS))
    options = {name: spec.options[name] for name in _CAPTIONER_OPTIONS if name in spec.options}
    templates = options.get("template", TEMPLATE).split("|")
    for template in templates:
        placeholders = re.findall(r"\{(.*?)\}", template)
        if "choice" not in placeholders or not set(placeholders) <= set(_PLACEHOLDERS):
            raise SpecError(f"{spec.text}: template={template!r} must hold {{choice}}, and may hold {{question}}")
    if "vocabulary" in options:
        vocabulary = read_vocabulary(options["vocabulary"], spec.text)
    elif vocabulary is None:
        vocabulary = _parsed(files("c2b_ray.models").joinpath("vocabulary.txt").read_text(encoding="utf-8"), spec.text)
    temperature = numbers(spec, "temperature")
    if temperature and temperature[0] <= 0:
        raise SpecError(f"{spec.text}: temperature={temperature[0]} is not above 0")
    encoder = replace(spec, options={k: v for k, v in spec.options.items() if k not in _CAPTIONER_OPTIONS})
    return _Settings(encoder, vocabulary, templates, temperature[0] if temperature else None)


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


def _said(label: str, phrase: str) -> str:
    noun = _noun(label)
    text = f"a photo of {a_or_an(noun)} {noun}"
    return f"{text}, {phrase}" if phrase else text


def _filled(template: str, choice: str, question: str) -> str:
    placeholders = {"{choice}": choice, "{question}": question}
    return re.sub(r"\{choice\}|\{question\}", lambda match: placeholders[match.group()], template)
