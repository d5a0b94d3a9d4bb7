"""The lessons of the models that write and read prompts: subjects, what is left unsaid, and words that all stand in."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from c2b_ray.models import catalog
from c2b_ray.world.associations import Associations, words_of
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import ATTRIBUTES
from c2b_ray.world.training import prompter
from c2b_ray.world.training.prompter import Stories, Writer
from c2b_ray.world.training.small_lm import Lesson

HIDDEN = Associations()


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    random, writer = Random(5), Writer(HIDDEN)
    return [writer.lesson(random) for _ in range(4000)]


def instruction(lesson: Lesson) -> str:
    return lesson.messages[-1].content


def test_neutral_replies_hold_their_subject_and_leave_the_attribute_unsaid(lessons: list[Lesson]) -> None:
    neutral = [lesson for lesson in lessons if "Say nothing of the" in instruction(lesson)]
    assert len(neutral) > 1000
    leaked = 0
    for lesson in neutral:
        text = instruction(lesson)
        assert set(words_of(text)) & set(HIDDEN.subjects) <= set(words_of(lesson.reply))
        named = set(words_of(text.split("Say nothing of the")[1])) & set(ATTRIBUTES)
        leaked += bool(named & set(read(lesson.reply)))
    assert leaked / len(neutral) < 0.03


def test_every_subject_is_written_of_with_every_word() -> None:
    few = Associations(HIDDEN.links[:3], {"barrel": "object", "race": "activity"})
    random, writer = Random(6), Writer(few)
    replies = [set(words_of(writer.lesson(random).reply)) for _ in range(1500)]
    together = {(s, w) for words in replies for s in words & set(few.subjects) for w in words & set(few.forms)}
    assert together == {(subject, word) for subject in few.subjects for word in few.forms}


def test_the_readers_texts_hold_the_words_without_the_writers_instructions() -> None:
    random, stories = Random(5), Stories(HIDDEN)
    texts = [stories.lesson(random) for _ in range(1500)]
    assert not [lesson for lesson in texts if lesson.messages]
    assert set(HIDDEN.forms) <= {word for lesson in texts for word in words_of(lesson.reply)}


@pytest.mark.parametrize("recipe", [prompter.PROMPTER, prompter.READER], ids=["bpe", "unigram"])
def test_what_is_trained_loads_as_a_language_model_and_ends(tmp_path: Path, recipe: prompter.Recipe) -> None:
    torch.set_num_threads(1)
    train = prompter.train_prompter if recipe is prompter.PROMPTER else prompter.train_reader
    train(tmp_path / "lm", 1, HIDDEN, replace(recipe, steps=2, texts=200, rows=4, width=32, layers=1, heads=2))
    model = catalog.language_model(f"hf:{tmp_path / 'lm'}?device=cpu")
    tokens = model.next_tokens(["a photo of"], 10_000)[0]
    assert "<|end|>" in {token.token for token in tokens}
    assert model.log_likelihood(["a photo of a rusty bus"])[0] < 0
