import pyarrow as pa

from c2b_ray.audits.c2b.scoring.findings import confirmed, to_confirm
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose
from c2b_ray.tables import DRAWS, SCORES

PROPOSALS, _ = propose("t", ["bus"], None, {"weather": ["snow", "rain"], "size": ["small", "large"]}, 0)
CAPTIONS, _ = caption("t", PROPOSALS, None, 2, 0)
NUMBERS = {"n": 9, "correct": 9, "errors": 0, "paper_verdict": 0, "repeats": 0, "mistaken": 0}


def scores_of(**verdicts):
    attribute = {"snow": "weather", "rain": "weather", "small": "size", "large": "size"}
    return [
        {
            "classifier": "m",
            "target_class": "bus",
            "attribute": attribute[v],
            "bias_class": v,
            "verdict": said,
            **NUMBERS,
        }
        for v, said in verdicts.items()
    ]


def test_all_values_of_an_attribute_with_a_finding_draw_as_many_again():
    rows = scores_of(snow="against", rain="undetermined", small="none", large="none")
    number = {"snow": 3, "rain": 2, "small": 5, "large": 5}
    draws = [
        {"caption_id": row["caption_id"], "image_id": f"{row['caption_id']}-{i}-{s}", "rank": i, "source": s}
        for row in CAPTIONS.to_pylist()
        for s in ("retrieve", "generate")
        for i in range(number[row["bias_class"]] - (s == "generate"))
    ]
    scores, drawn = pa.Table.from_pylist(rows, SCORES), pa.Table.from_pylist(draws, DRAWS)
    found = {value: images for (_, value), images in to_confirm(scores, CAPTIONS, drawn).items()}
    assert found == {"snow": 6, "rain": 4}  # two captions a cell, from the source that gave more
    nothing = pa.Table.from_pylist(scores_of(snow="undetermined", rain="none"), SCORES)
    assert to_confirm(nothing, CAPTIONS, drawn) == {}


def test_scores_get_phi_of_fresh_images_and_nothing_else():
    rows = scores_of(snow="against", rain="for", small="none")
    for row in rows:
        row |= {"phi": -0.3, "phi_low": -0.4, "phi_high": -0.2}
    fresh = [row | {"phi": -0.1, "phi_low": -0.25, "phi_high": 0.05, "verdict": "none"} for row in rows]
    fresh[2] |= {"phi": float("nan"), "phi_low": float("nan"), "phi_high": float("nan")}
    old = pa.Table.from_pylist(rows, SCORES)
    new = confirmed(old, pa.Table.from_pylist(fresh, SCORES))
    columns = ["phi_confirmed", "phi_confirmed_low", "phi_confirmed_high"]
    assert [[row[name] for name in columns] for row in new.to_pylist()] == [[-0.1, -0.25, 0.05]] * 2 + [[None] * 3]
    assert new.drop_columns(columns).equals(old.drop_columns(columns))
