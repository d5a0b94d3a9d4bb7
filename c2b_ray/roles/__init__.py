"""The roles that models play on the path (`protocols`, `language`), and the values that cross them (`values`).

A role is a Protocol of one to three batch methods: as many outputs as inputs, in their order. A bad row is a value (an
error in its place); a dead service is an exception (`errors.ServiceError`). This package knows no model and no service.
"""

from c2b_ray.roles.guessing import GroupGuesser
from c2b_ray.roles.language import LanguageModel, ReplyContinuer, TokenCounter
from c2b_ray.roles.protocols import (
    ActivationReader,
    Captioner,
    CaptionScorer,
    Classifier,
    FileCaptioner,
    FileClassifier,
    FileEncoder,
    GradientClassifier,
    ImageGenerator,
    ImageIndex,
    LatentGenerator,
    Remote,
    SentenceEncoder,
    TextEncoder,
    TextImageEncoder,
)
from c2b_ray.roles.values import (
    Answer,
    CaptionReply,
    ChatReply,
    ChatRequest,
    Description,
    Floats,
    GeneratedImage,
    GenerationRequest,
    Message,
    ModelFact,
    Neighbours,
    Pixels,
    Question,
    TokenLogProb,
)

__all__ = [
    "ActivationReader",
    "Answer",
    "CaptionReply",
    "CaptionScorer",
    "Captioner",
    "ChatReply",
    "ChatRequest",
    "Classifier",
    "Description",
    "FileCaptioner",
    "FileClassifier",
    "FileEncoder",
    "Floats",
    "GeneratedImage",
    "GenerationRequest",
    "GradientClassifier",
    "GroupGuesser",
    "ImageGenerator",
    "ImageIndex",
    "LanguageModel",
    "LatentGenerator",
    "Message",
    "ModelFact",
    "Neighbours",
    "Pixels",
    "Question",
    "Remote",
    "ReplyContinuer",
    "SentenceEncoder",
    "TextEncoder",
    "TextImageEncoder",
    "TokenCounter",
    "TokenLogProb",
]
