"""Describes image classification tasks in very many wordings.

It knows English frames and words, some of them withheld from training (`held_out=True` draws from those alone); it does
not know the world's classes and attributes, nor what a language model answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split("|" if "|" in text else None))


def _split(seen: str, held_out: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return words(seen), words(held_out)


# Every list has two parts: what training sees, and what only `evaluate` sees.
VERBS = _split(
    "classify|sort|recognise|recognize|identify|label|tell apart|categorise|categorize|distinguish|tag|name|detect|"
    "group|assign a class to|predict the class of|separate|organise|annotate|spot|find the type of|judge|check|"
    "describe|sort out|work out|count|filter|index|look at",
    "discern|catalogue|pick out|pigeonhole|give a label to|tell the kind of",
)
IMAGES = _split(
    "photos|photographs|pictures|images|snapshots|photo|picture|image|stills|thumbnails|scans|frames|camera images|"
    "drawings|renderings|web images|phone pictures|small pictures|colour photos|stock photos|crops|screenshots|shots|"
    "product photos|video frames|sketches|synthetic images|scenes",
    "footage|snaps|camera-trap frames|low-resolution pics|illustrations|selfies",
)
SUBJECTS = _split(
    "everyday objects|things|household items|vehicles|animals|common objects|objects|items|products|toys|furniture|"
    "food|plants|tools|street scenes|birds|fish|buildings|clothes|means of transport|pets|outdoor things|"
    "things at home|traffic|kitchen things|sea life|what people carry|natural scenes|ten kinds of objects|"
    "simple shapes|wild animals|faces|flowers|insects|medical scans|road signs|documents|goods|boxes|fruit|cars|"
    "logos|garments|machines|landmarks|waste|leaves|cells|defects|ships|aircraft",
    "crockery|belongings|mundane stuff|creatures|belongings left on a train|cutlery|gadgets|mushrooms|trinkets",
)
NOUNS = _split(
    "dog|cat|car|truck|train|horse|cow|sheep|tree|flower|table|lamp|book|phone|clock|bottle|cup|plate|fork|spoon|"
    "knife|shoe|hat|shirt|bag|ball|kite|bench|sign|door|window|bridge|tower|church|castle|ship|plane|rocket|tractor|"
    "van|taxi|tram|bear|lion|tiger|zebra|elephant|monkey|frog|snake|spider|ant|bee|owl|eagle|duck|swan|shark|whale|"
    "crab|apple|orange|banana|bread|pizza|cake|egg|onion|carrot|guitar|piano|drum|violin|camera|laptop|keyboard|"
    "mouse|robot|sofa|bed|desk|mirror|vase|pan|kettle|oven|hammer|saw|drill|rope|tent|bucket|basket|ladder|wheel|"
    "helmet|glove|ring|watch|coin|island|teapot|envelope|igloo|axe|otter|ostrich|armchair|ambulance|engine|iron|oak|"
    "urn|eel|golden retriever|tabby cat|sports car|fire engine|coffee table|polar bear|traffic light|tennis racket|"
    "mountain bike|great white shark",
    "wolf|parrot|trumpet|scooter|pillow|lighthouse|octopus|accordion|cello|jeep|snow leopard|washing machine|candle|"
    "anvil",
)
PLACES = _split(
    "a toy shop|a museum|a web shop|a newspaper|a school|a robot|a car park|a zoo|a farm|a hospital|an airport|"
    "a harbour|a travel site|a photo album|a search engine|a phone app|a warehouse|an insurance company|a city|"
    "a child's game|a research project|a library|an online market|our customers|blind users|a drone|a social network|"
    "a recycling plant|a supermarket|a factory|a self-driving car|a security camera|my thesis|a class of students|"
    "a start-up",
    "a lost-property office|a ferry operator|a kindergarten|an auction house|a weather station|the town archive",
)
ADJECTIVES = _split(
    "small|large|simple|fast|new|old|reliable|fair|robust|tiny|public|free|general|modern|good|cheap|strong|open|"
    "trained|pretrained|deep|convolutional|green|quiet|strange|busy|clean|heavy|bright|early|famous|rare",
    "lightweight|off-the-shelf|trustworthy|dusty|peculiar|frugal",
)
MODELS = _split(
    "image classifier|classifier|model|network|system|neural network|vision model|recogniser|app|service|tool|"
    "program|convnet|vision transformer|resnet|algorithm|computer vision system|tagger",
    "perception module|sorting machine|machine-learning pipeline|visual assistant",
)
FRAMES = _split(
    "{Verb} {images} of {subject}|{Verb} {images} of {subject} into {n} classes|{Verb} {subject} in {images}|"
    "{Verb} {list} in {images}|A {adjective} {model} for {place}|The {model} of {place}|{Images} of {subject}|"
    "{model} of {subject}|{Subject}|{list}|Tell {a} from {b} in {images}|Is it a {a} or a {b}?|{Images} of {list}|"
    "What is in the {images}: {list}?|Which {subject} are in these {images}?|Given {images}, {verb} {subject}|"
    "The {model} should {verb} {images} of {subject} for {place}|We {verb} {subject} for {place}|"
    "I want to {verb} {subject} with a {adjective} {model}|The task is to {verb} {images} into {n} categories|"
    "{n}-way image classification of {subject}|image classification|object recognition|{Subject} recognition|"
    "{Verb} {images} as one of {list}|Does the {images} show a {a}?|Classes: {list}|"
    "My {model} sorts {images} by {subject}|{Place} needs a {model} that can {verb} {subject}|"
    "Audit a {model} that can {verb} {images} of {subject}|A dataset of {n} kinds of {subject}|"
    "Find out where a {model} of {subject} fails|{Model}|This {model} was trained to {verb} {subject}|"
    "{Verb} the main object of {images}|How well does it {verb} {subject}?|"
    "Recognise whether {images} show a {a}, a {b} or something else|What does this {model} see?|"
    "Multi-class classification with {n} labels: {list}|Users of {place} upload {images} and we {verb} them|{filler}",
    "For {place}, decide what each of the {images} depicts|Put {subject} in the right drawer, one of {n}|"
    "Could a {adjective} {model} {verb} {subject}?|{Images}, one {subject} each, labels {list}|"
    "Benchmark on {n} categories ({list})|Say what you see: {a}, {b}, neither|"
    "People at {place} {verb} {images} by hand and would like help|Looking for a {model}, subject: {subject}",
)
_FILLER = words(
    "The {adjective} {noun} {verb}s the {noun2}|It runs on {place}|Errors are costly|There are {n} of them|"
    "Be careful|The {images} come from {place}|Some {images} are {adjective}|A {noun} is not a {noun2}|"
    "Nobody checked the labels|We collected {n} {images} last year|"
    "They were taken by day and by night, in rain and sun|Thank you|Please answer soon|Colour should not matter|"
    "People, dogs and streets may appear|The {model} is {adjective}"
)
_SYLLABLES = words(
    "ba be bi bo bu ca ce co cu da de di do du fa fe fi fo ga ge go gu ha he hi ho ja jo ka ke ki ko la le li lo lu "
    "ma me mi mo mu na ne ni no nu pa pe pi po qua ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we wi "
    "xa ya yo za ze zo an en in on un ar er or al el il ol as es is os at et it ot am em um ack eck ick ock ing ang "
    "ong ent ant ist ost sh ch th tr str pl bl gr br dr fl sl sp st"
)


def some(rng: Random, lists: tuple[tuple[str, ...], tuple[str, ...]], held_out: bool) -> str:
    return rng.choice(lists[held_out])


def made_up_word(rng: Random, pieces: Sequence[str] = ()) -> str:
    """Makes up a word without meaning: of syllables, or of `pieces` of a tokenizer's vocabulary, so that training
    copies every token."""
    if pieces and rng.random() < 0.6:
        return "".join(rng.choice(pieces) for _ in range(rng.randint(1, 3))).strip("_-'") or "x"
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))


def noun(rng: Random, pieces: Sequence[str] = (), held_out: bool = False) -> str:
    """Draws a noun that stands for a class; half of them are made up, and may have two words or a capital letter."""
    if rng.random() < 0.5 and not (held_out and not pieces):
        return some(rng, NOUNS, held_out)
    word = made_up_word(rng, pieces)
    form = rng.random()
    if form < 0.25:
        return f"{word} {made_up_word(rng, pieces)}"
    if form < 0.33:
        return f"{word}_{made_up_word(rng, pieces)}" if form < 0.29 else f"{word}, {made_up_word(rng, pieces)}"
    return word.capitalize() if form < 0.43 else word


def _listing(rng: Random, classes: Sequence[str], held_out: bool) -> str:
    pool = list(classes) if rng.random() < 0.6 else [noun(rng, held_out=held_out) for _ in range(8)]
    chosen = rng.sample(pool, rng.randint(2, len(pool)))
    if rng.random() < 0.4:
        chosen = [f"{c}es" if c.endswith(("s", "sh")) else f"{c}s" for c in chosen]
    joint = rng.choice((" and ", " or ", ", ", " & "))
    return joint.join([", ".join(chosen[:-1]), chosen[-1]])


def _slots(rng: Random, classes: Sequence[str], held_out: bool) -> dict[str, str]:
    lists = {
        "verb": VERBS,
        "images": IMAGES,
        "subject": SUBJECTS,
        "place": PLACES,
        "adjective": ADJECTIVES,
        "model": MODELS,
    }
    values = {name: some(rng, words, held_out) for name, words in lists.items()}
    values |= {name.capitalize(): value[:1].upper() + value[1:] for name, value in values.items()}

    def thing() -> str:
        return noun(rng, held_out=held_out) if novel else rng.choice(classes)

    novel = rng.random() < 0.4
    values |= {
        "a": thing(),
        "b": thing(),
        "noun": noun(rng),
        "noun2": noun(rng),
        "list": _listing(rng, classes, held_out),
    }
    values["n"] = rng.choice(
        ("two", "three", "five", "ten", "ten", "10", "20", "100", "1000", "many", str(rng.randint(2, 999)))
    )
    values["filler"] = " ".join(
        made_up_word(rng) if rng.random() < 0.6 else noun(rng) for _ in range(rng.randint(1, 14))
    )
    return values


def task(rng: Random, classes: Sequence[str], held_out: bool = False) -> str:
    """Describes a task in one to eight sentences. `classes`: what its lists may name."""
    text = rng.choice(FRAMES[held_out]).format(**_slots(rng, classes, held_out))
    more = rng.choice((0, 0, 0, 0, 1, 1, 2, rng.randint(3, 7)))
    sentences = [text] + [rng.choice(_FILLER).format(**_slots(rng, classes, held_out)) for _ in range(more)]
    if more and rng.random() < 0.3:
        rng.shuffle(sentences)
    if more and rng.random() < 0.2:
        sentences.insert(0, " ".join(made_up_word(rng) for _ in range(rng.randint(3, 12))).capitalize())
    joined = sentences[0] if len(sentences) == 1 else ". ".join(s.rstrip("?.") for s in sentences)
    if rng.random() < 0.5 and not joined.endswith("?"):
        joined += "."
    form = rng.random()
    if form < 0.2:
        return joined.lower()
    return joined.upper() if form < 0.22 else joined
