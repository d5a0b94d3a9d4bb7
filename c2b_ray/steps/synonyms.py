"""Finds names that mean the same: by spelling, or by an encoder's similarity together with a second reason, never by
similarity alone.

Antonyms are close together in the space of an image-text encoder (day and night, small and large): so similarity only
proposes pairs, and a shared head word or a language model decides. It knows names, not what they are used for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.names import SINGULAR_ENDINGS, a_or_an
from c2b_ray.roles import ChatRequest, Floats, LanguageModel, TextEncoder
from c2b_ray.steps.replies import SAME_SCHEMA, parse_reply
from c2b_ray.tables import seed_of

THRESHOLD = 0.9
PROMPT = "same"
Words = tuple[str, ...]

# British and American spellings, and forms whose stems the endings below do not reach.
_SPELLED = {
    "color": "colour", "gray": "grey", "center": "centre", "harbor": "harbour", "mold": "mould", "tire": "tyre",
    "nighttime": "night", "daytime": "day", "sunny": "sun", "foggy": "fog",
}  # fmt: skip
_LEADING = frozenset({"a", "an", "the", "in", "on", "at", "by", "during", "of", "with"})
_FILLERS = frozenset({"condition", "type", "kind", "level", "status", "category", "value", "scene", "environment"})
_NIGHT_OR_DAY = frozenset({"night", "day"})
# Words that set names apart whatever else they share, each line a set of alternatives.
_CONTRASTS = tuple(
    frozenset(line.split())
    for line in """
    day night dawn dusk sunrise sunset noon morning evening
    light dark bright dim
    small large big tiny huge little medium
    near far close distant
    left right centre
    front back rear side top bottom
    above below over under
    indoor outdoor inside outside
    old young new
    male female man woman boy girl
    high low
    hot cold warm cool
    wet dry
    empty full crowded
    open closed
    on off
    yes no
    with without
    heavy light slight
    sharp blurry blurred
    plain striped dotted
    clear cloudy
    summer winter spring autumn
    red blue green yellow orange purple pink black white grey brown
    zero one two three four five six seven eight nine ten many few single several none
    first second third
    """.strip().splitlines()
)
_NEGATIONS = frozenset({"no", "not", "non", "without", "never", "none", "un", "isnt", "lacking", "less"})


@dataclass(frozen=True)
class SynonymPair:
    """Two names that mean the same, their similarity by an encoder (None: not compared), and the rule."""

    a: str
    b: str
    similarity: float | None
    rule: str


def key(name: str) -> Words:
    """Returns the name's words without leading articles and prepositions, in one spelling and in the singular."""
    raw_words = re.findall(r"[^\W_]+", name.lower().replace("'", "").replace("’", ""))
    words = [_stem(word) for word in raw_words]
    while len(words) > 1 and raw_words[len(raw_words) - len(words)] in _LEADING:
        words = words[1:]
    if len(words) == 2 and words[0] in _NIGHT_OR_DAY and words[1] == "time":  # night time, as nighttime
        words = words[:1]
    return tuple(words)


def head(name: str) -> Words:
    """Returns the key without words that add no meaning: "weather conditions" is "weather"."""
    return tuple(word for word in key(name) if word not in _FILLERS)


def apart(a: str, b: str) -> bool:
    """Returns whether words are known to distinguish the two names: antonyms, numbers, colours, or a negation
    of one."""
    words_a, words_b = set(key(a)), set(key(b))
    only_a, only_b = words_a - words_b, words_b - words_a
    if bool(words_a & _NEGATIONS) != bool(words_b & _NEGATIONS):
        return True
    contrasts = any(only_a & group and only_b & group for group in _CONTRASTS)
    return contrasts or {w for w in only_a if w.isdigit()} != {w for w in only_b if w.isdigit()}


def _stem(word: str) -> str:
    word = _SPELLED.get(word, word)
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = _SPELLED.get(word, word)
    # snowy, rainy and windy are what has snow, rain and wind.
    return word[:-1] if word in {"snowy", "rainy", "windy", "misty", "cloudy", "stormy", "rocky"} else word


@dataclass
class Judge:
    """Decides which names mean the same, with the models that it has: both may be None. Answers are kept."""

    encoder: TextEncoder | None = None
    language_model: LanguageModel | None = None
    seed: int = 0
    _embedded: dict[str, Floats] = field(default_factory=dict)
    _known_answers: dict[frozenset[str], bool] = field(default_factory=dict)

    def same(
        self, lists: Sequence[Sequence[str]], companions: Mapping[str, set[str]] | None = None
    ) -> list[list[SynonymPair]]:
        """For each list of names, the pairs in it that mean the same, earlier name first.

        spelling        the keys are equal
        head word       the heads are equal, and the encoder holds the two to be each other's nearest in the list, at
                        `THRESHOLD` or more
        language model  nearest and as near, and the language model says twice, in either order, that they mean
                        the same; with `companions` (of an attribute its values) only where the two share one
        Never where `apart` says no.
        """
        self._embed(name for names in lists for name in names)
        nearest_pairs = [list(self._nearest(names)) for names in lists]
        open_pairs = [
            (a, b)
            for pairs in nearest_pairs
            for a, b, _ in pairs
            if key(a) != key(b) and head(a) != head(b) and _related(a, b, companions)
        ]
        self._ask(open_pairs)
        return [self._of_list(names, pairs) for names, pairs in zip(lists, nearest_pairs, strict=True)]

    def _of_list(self, names: Sequence[str], nearest_pairs: Sequence[tuple[str, str, float]]) -> list[SynonymPair]:
        result = [
            SynonymPair(a, b, self._similarity(a, b), "spelling")
            for a, b in combinations(names, 2)
            if a != b and key(a) == key(b)
        ]
        for a, b, similarity in nearest_pairs:
            if key(a) == key(b):
                continue
            if head(a) and head(a) == head(b):
                result.append(SynonymPair(a, b, similarity, "head word"))
            elif self._known_answers.get(frozenset((a, b))):
                result.append(SynonymPair(a, b, similarity, "language model"))
        return result

    def _embed(self, names: Iterable[str]) -> None:
        new = [name for name in dict.fromkeys(names) if name not in self._embedded]
        if self.encoder is not None and new:
            self._embedded.update(zip(new, self.encoder.encode_texts(new), strict=True))

    def _similarity(self, a: str, b: str) -> float | None:
        if self.encoder is None:
            return None
        return float(self._embedded[a] @ self._embedded[b])

    def _nearest(self, names: Sequence[str]) -> Iterable[tuple[str, str, float]]:
        """Yields pairs that are each other's nearest, similar enough, and not known to be apart."""
        if self.encoder is None or len(names) < 2:
            return
        vectors = np.stack([self._embedded[name] for name in names])
        similarity = vectors @ vectors.T
        np.fill_diagonal(similarity, -np.inf)
        nearest = similarity.argmax(axis=1)
        for i, j in enumerate(nearest.tolist()):
            if i < j and nearest[j] == i and similarity[i, j] >= THRESHOLD and not apart(names[i], names[j]):
                yield names[i], names[j], float(similarity[i, j])

    def _ask(self, pairs: Sequence[tuple[str, str]]) -> None:
        new = [pair for pair in dict.fromkeys(pairs) if frozenset(pair) not in self._known_answers]
        if self.language_model is None or not new:
            return
        orders = [order for a, b in new for order in ((a, b), (b, a))]
        requests = [
            ChatRequest(
                prompts.messages(PROMPT, first=first, second=second),
                schema=SAME_SCHEMA,
                max_tokens=32,
                seed=seed_of(PROMPT, prompts.text(PROMPT), first, second, self.seed),
            )
            for first, second in orders
        ]
        answers = []
        for reply in self.language_model.chat(requests):
            try:
                answers.append(bool(parse_reply(reply, SAME_SCHEMA)["same"]))
            except ReplyError:
                answers.append(False)  # what is not understood does not confirm
        for number, pair in enumerate(new):
            self._known_answers[frozenset(pair)] = answers[2 * number] and answers[2 * number + 1]


def _related(a: str, b: str, companions: Mapping[str, set[str]] | None) -> bool:
    if companions is None:
        return True
    return bool({key(v) for v in companions[a]} & {key(v) for v in companions[b]})


# English words by their position in a caption, and the small grammar that joins them: articles and plurals.


def _set(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split("|" if "|" in text else None))


COLOURS = _set(
    "red orange yellow green blue purple violet pink brown black white grey gray beige gold golden silver "
    "turquoise cyan "
    "magenta teal navy maroon cream tan multicoloured multicolored colourful colorful bright-red dark-blue pale"
)
PREPOSITIONS = _set(
    "in on at by near with without under over above below behind beside between inside outside during from next "
    "against "
    "among around through along across facing wearing holding surrounded accompanied seen viewed made covered partially"
)
ADVERBS = _set(
    "indoors|outdoors|underwater|upside down|alone|far away|close up|up close|nearby|outside|inside|overhead|upright|"
    "in the distance|side by side|at night"
)
ONE, MANY = (
    _set("one|single|1|only one|a single"),
    _set("two|three|four|five|six|seven|eight|nine|ten|several|many|few|multiple|a few|numerous|a lot of|2|3|4|5"),
)
DEGREES = _set("low|medium|high|strong|weak|moderate|heavy|little|partial|full|slight|extreme|minimal|severe|mild|none")
SIZES = _set("little|full")
LIGHT_ON_THINGS = _set(
    "dark|bright|dim|backlit|well-lit|well lit|dimly lit|brightly lit|shaded|sunlit|shadowed|overexposed|underexposed"
)

# Words of attribute names that say what kind of value follows.
COMPANY = _set(
    "companion companions company person people object objects accompanied accompaniment nearby neighbour animal "
    "animals prop props cooccurring"
)
COUNTS = _set("number count quantity amount how many")
OF_PICTURE = _set(
    "blur blurriness sharpness focus noise quality image resolution contrast medium genre saturation exposure "
    "photo picture compression photography filter tone brightness art artistic"
)
OF_VIEW = _set("view viewpoint angle perspective camera viewing distance framing shot crop side")
OF_TIME = _set("time season day hour month period moment daytime era")
OF_WEATHER = _set("weather climate sky precipitation")
OF_LIGHT = _set("light lighting illumination")
OF_SETTING = _set(
    "setting background location place scene environment surroundings context habitat backdrop scenery where "
    "terrain landscape surface"
)
KINDS = _set(
    "colour color colours colors size shape length material texture pattern style type kind age condition state "
    "of the main "
    "object primary dominant overall body apparent relative visible general surface subject item"
)
OF_SIZE = _set("size scale height width length")
OF_MATTER = _set(
    "material texture pattern shape make made style type breed kind finish print fabric species model brand body"
)
WORN = _set(
    "accessory accessories clothing clothes outfit wear wearing worn decoration decorations attire equipment "
    "glasses hat"
)

WHEN = {
    "day": "by day", "daytime": "by day", "daylight": "in daylight", "night": "at night", "nighttime": "at night",
    "dusk": "at dusk", "dawn": "at dawn", "sunset": "at sunset", "sunrise": "at sunrise", "noon": "at noon",
    "midday": "at midday", "midnight": "at midnight", "twilight": "at twilight", "morning": "in the morning",
    "afternoon": "in the afternoon", "evening": "in the evening", "golden hour": "at golden hour",
    "spring": "in spring", "summer": "in summer", "autumn": "in autumn", "fall": "in autumn", "winter": "in winter",
    "rain": "in the rain", "rainy": "in the rain", "raining": "in the rain", "snow": "in the snow",
    "snowy": "in the snow", "snowing": "in the snow", "fog": "in fog", "foggy": "in fog", "mist": "in mist",
    "misty": "in mist", "haze": "in haze", "hazy": "in haze", "storm": "in a storm", "stormy": "in a storm",
    "thunderstorm": "in a thunderstorm", "sun": "in the sun", "sunny": "in sunny weather", "wind": "in the wind",
    "windy": "in the wind", "hail": "in hail", "frost": "in frost", "ice": "on ice", "clear sky": "under a clear sky",
    "blue sky": "under a blue sky", "cloudy sky": "under a cloudy sky", "clouds": "under clouds",
    "sunlight": "in sunlight", "moonlight": "in moonlight", "shade": "in the shade", "shadow": "in the shadow",
    "candlelight": "by candlelight", "darkness": "in the dark", "spotlight": "in a spotlight",
    "neon": "in neon light",
    "backlight": "in backlight", "flash": "with flash",
}  # fmt: skip

_ON = (
    "beach grass lawn sand shore hill track runway stage shelf roof bridge mountain island farm highway floor "
    "ground desk sofa "
    "table plate road snow ice water rock rocks couch bed carpet rug tree branch wall pavement sidewalk counter "
    "playground path "
    "street-corner railway rails deck balcony meadow"
)
_AT = "airport station zoo party school market harbour harbor port stadium seaside lake crossroads intersection"
_IN = (
    "street forest woods city desert kitchen garden park sky mountains jungle countryside wild town sea ocean "
    "field office "
    "bathroom bedroom living-room house room studio hand library museum shop restaurant classroom car-park tunnel "
    "cave village "
    "yard backyard parking-lot warehouse factory gym laboratory hospital box basket cage river pool swamp valley"
)
_A = _set(
    "field park garden kitchen studio room house shop restaurant classroom tunnel cave village warehouse factory "
    "gym laboratory hospital box basket cage library museum office bathroom bedroom living-room car-park "
    "parking-lot yard backyard pool farm plate table desk sofa shelf roof bridge hill track runway stage highway "
    "road rock couch bed carpet rug tree branch wall counter playground path mountain island airport station zoo "
    "party school market stadium lake swamp valley meadow deck balcony"
)
_NONE = {"grass", "sand", "snow", "ice", "rocks", "water"}


def _where() -> dict[str, str]:
    """Returns beach → on the beach, kitchen → in a kitchen, grass → on grass."""
    result = {}
    for preposition, names in (("on", _ON), ("at", _AT), ("in", _IN)):
        for name in names.split():
            noun = name.replace("-", " ")
            result[noun] = f"{preposition} {'a ' if name in _A else '' if name in _NONE else 'the '}{noun}"
    return result


WHERE = _where()
WHERE |= {
    "office": "in an office", "island": "on an island", "airport": "at an airport", "home": "at home",
    "indoor": "indoors", "outdoor": "outdoors", "indoors": "indoors",
    "outdoors": "outdoors", "underwater": "underwater", "nature": "in nature", "hand": "in a hand",
    "sea": "by the sea",
    "coast": "on the coast", "tree": "in a tree", "water": "in the water", "space": "in space",
    "woodland": "in the woods",
    "mountains": "in the mountains", "grassland": "in grassland", "roadside": "by the roadside",
    "river": "by a river",
}  # fmt: skip

VIEWS = {
    "side": "from the side", "front": "from the front", "frontal": "from the front", "back": "from behind",
    "rear": "from behind", "behind": "from behind", "top": "from above", "above": "from above",
    "overhead": "from above",
    "top-down": "from above", "top down": "from above", "aerial": "from the air", "bird's-eye": "from above",
    "birds eye": "from above", "bird's eye": "from above", "below": "from below", "bottom": "from below",
    "low": "from a low angle", "high": "from a high angle", "eye-level": "at eye level", "eye level": "at eye level",
    "diagonal": "at an angle", "oblique": "at an angle", "close-up": "in close-up", "close up": "in close-up",
    "close": "in close-up", "near": "from nearby", "far": "from far away", "far away": "from far away",
    "distant": "in the distance", "wide": "in a wide view", "left": "from the left", "right": "from the right",
    "profile": "in profile", "medium": "from a medium distance", "three-quarter": "in three-quarter view",
}  # fmt: skip

_OF_MEDIA = (
    "painting|oil painting|watercolour|watercolor|sketch|drawing|pencil drawing|cartoon|sculpture|illustration|"
    "line drawing|engraving|embroidery|origami|tattoo|toy|3d render|rendering|silhouette|mosaic|comic|statue|"
    "photograph|photo"
)
MEDIA = {name: name for name in _OF_MEDIA.split("|")} | {
    "painted": "painting",
    "sketched": "sketch",
    "drawn": "drawing",
}

ADJECTIVES = _set(
    "small big large tiny huge little giant long short tall wide narrow thick thin fat slim high new old young ancient "
    "modern vintage clean dirty wet dry empty full open closed plain solid simple busy smooth rough soft hard "
    "shiny matte "
    "dark bright dim light pale clear sharp blurry noisy grainy male female adult baby elderly round square oval flat "
    "curved straight angular wooden metallic transparent opaque reflective broken intact damaged hidden visible "
    "occluded "
    "urban rural natural artificial wild domestic happy sad angry calm crowded quiet beautiful ugly cheap "
    "expensive fast "
    "slow still parked moving asleep awake alive dead fresh rotten ripe raw cooked hot cold warm cool sunny rainy "
    "snowy "
    "foggy cloudy windy stormy overcast misty hazy dusty grassy rocky sandy muddy icy black-and-white monochrome "
    "abstract "
    "realistic medium medium-sized average normal unusual rare common typical heavy lightweight fluffy furry "
    "hairy bald "
    "bearded spotted striped dotted checked checkered floral patterned single double lone solitary major minor "
    "front-facing "
    "cluttered blank textured uniform professional amateur casual formal sporty pixelated overexposed "
    "underexposed good bad"
)
_ENDINGS = (
    "ed",
    "ing",
    "ish",
    "ous",
    "ful",
    "less",
    "ive",
    "ular",
    "like",
    "able",
    "ible",
    "shaped",
    "sized",
    "coloured",
    "colored",
    "eyed",
)
_NOUNS = _set(
    "bed seed weed shed ceiling building painting drawing wing ring string king spring morning evening clothing "
    "lightning "
    "railing dish fish brush wish radish table vegetable cable need feed breed reed sled led red evening wedding "
    "crossing parking"
)


def is_adjective(value: str) -> bool:
    """Returns whether it can stand before a noun: its last word is a known adjective or has an adjective's ending."""
    parts = value.split()
    if not parts or len(parts) > 3:
        return False
    last = parts[-1].rsplit("-", 1)[-1] if parts[-1] not in ADJECTIVES else parts[-1]
    if last in ADJECTIVES or last in COLOURS:
        return True
    return last not in _NOUNS and len(last) > 4 and last.endswith(_ENDINGS)


_DETERMINERS = ("a ", "an ", "the ", "no ", "some ", "two ")


def article(name: str) -> str:
    """Returns 'a ' or 'an ' before a noun or its adjective; '' before a plural or a name with its own article."""
    word = name.strip().lower()
    if not word or word.startswith(_DETERMINERS):
        return ""
    if word.endswith("s") and not word.endswith(SINGULAR_ENDINGS):
        return ""
    return f"{a_or_an(word)} "


MASS = _set(
    "water grass snow rain fog mist sand ice smoke fire food fruit furniture traffic graffiti text blur noise "
    "people dirt mud "
    "wood glass light clothing vegetation foliage equipment luggage hair fur motion occlusion shadow lighting "
    "weather color colour"
)


def some(name: str) -> str:
    """Returns the noun with its article; unchanged if it is a plural or uncountable."""
    if name.startswith("other ") and article(name.removeprefix("other ")):
        return f"an{name}"
    return name if name.split()[-1:] and name.split()[-1] in MASS else f"{article(name)}{name}"


def the(name: str) -> str:
    """Returns "the forest"; unchanged where the name has its own article or preposition."""
    return name if name.startswith(_DETERMINERS) or name in MASS else f"the {name}"
