"""Folders of any layout through a whole audit: what is left out stands on the terminal and in the run, and no layout
ends in anything but a run or an error of the user's."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from c2b_ray import audit
from c2b_ray.audits.dataset.build import build_dataset
from c2b_ray.audits.dataset.directory import verify
from c2b_ray.audits.index import build as build_index
from c2b_ray.audits.kit.progress import Event
from c2b_ray.errors import InputError
from c2b_ray.storage.labelled import LabelledTable


def picture(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve pictures of two classes, with what people have beside them."""
    rows, answers = ["file_name,weather"], ["file,label,prediction"]
    for number in range(12):
        name = f"{'red' if number % 2 else 'green'}/{number}.png"
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(picture(number))
        rows.append(f"{name},{'sun' if number % 4 < 2 else 'rain'}")
        answers.append(f"{name},{name.split('/')[0]},{'red' if number % 3 else 'green'}")
    for name in ("red/a.jxl", "green/b.psd", "red/c", ".hidden.png"):
        (tmp_path / "photos" / name).write_bytes(b"x")
    (tmp_path / "photos/metadata.csv").write_text("\n".join([*rows, "red/gone.png,sun"]) + "\n")
    (tmp_path / "answers.csv").write_text("\n".join(answers) + "\n")
    return tmp_path / "photos"


def config(photos: Path, table: str = "answers.csv") -> dict[str, object]:
    return {
        "task": "t",
        "classes": ["red", "green"],
        "classifier": f"table:{photos.parent / table}",
        "images": {"source": "labelled", "table": str(photos)},
    }


def test_an_audit_answers_by_the_prediction_and_says_what_it_leaves_out(photos: Path, tmp_path: Path) -> None:
    told: list[Event] = []
    run = audit(config(photos), tmp_path / "run", via="here", listener=told.append)
    assert sum(run.scores["correct"].to_pylist()) == 6  # of the truth beside it: 12
    noted = json.loads((tmp_path / "run/run.json").read_text())
    assert sum(noted["left_out"].values()) == 5
    said = [event.step for event in told if event.kind == "warning"]
    for reason in (".jxl", ".psd", "without a suffix", "hidden", "whose file is not among the images"):
        assert any(reason in line for line in said), reason
        assert any(reason in line for line in noted["warnings"]), reason


def test_a_table_of_other_images_ends_an_audit_before_it_begins(photos: Path, tmp_path: Path) -> None:
    text = (tmp_path / "answers.csv").read_text().replace("red/", "").replace("green/", "")
    (tmp_path / "bare.csv").write_text(text)
    with pytest.raises(InputError, match="they differ in the folder"):
        audit(config(photos, "bare.csv"), tmp_path / "run", via="here")


def test_a_dataset_notes_what_it_leaves_out_and_notices_changed_documents(photos: Path, tmp_path: Path) -> None:
    made = {
        "classifier": {"m": f"table:{photos.parent / 'answers.csv'}"},
        "images": {"labelled": {"table": str(photos), "by": ["weather"]}},
        "near_duplicates": None,
    }
    out = tmp_path / "dataset"
    built = build_dataset(made, out, via="here")
    assert sum(built.left_out.values()) == 5
    assert verify(str(out)).problems == []
    for name in ("dataset.json", "history.json", "manifest.json", "digests.json"):
        data = (out / name).read_bytes()
        for at in range(0, len(data), max(1, len(data) // 12)):
            (out / name).write_bytes(data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :])
            with suppress(InputError):  # where it is no document any more
                assert verify(str(out)).problems, f"{name} at {at}"
        (out / name).write_bytes(data)
    assert verify(str(out)).problems == []
    manifest = json.loads((out / "manifest.json").read_text())
    del manifest["documents"]  # as earlier releases wrote it
    (out / "manifest.json").write_text(json.dumps(manifest))
    (out / "digests.json").unlink()
    old = verify(str(out))
    assert (old.problems, len(old.notes)) == ([], 1)


def test_a_folder_of_damaged_pictures_alone_is_an_error_with_its_reason(tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"")
    (folder / "b.jpg").write_bytes(picture(0)[:60])
    with pytest.raises(InputError, match="no image can be used; the commonest reason"):
        build_index(str(folder), "world:clip", str(tmp_path / "index"))


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-", "| true", "> /dev/full"])
def test_an_output_that_nobody_reads_is_no_traceback(tmp_path: Path, redirection: str) -> None:
    command = f"{sys.executable} -m c2b_ray models {redirection}"
    done = subprocess.run(["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, timeout=120)
    assert b"Traceback" not in done.stderr
    assert done.returncode == {"| true": 141, "> /dev/full": 2}.get(redirection, 0)


NAMES = st.sampled_from(
    ["red/a.png", "red/b.PNG", "green/c.jpg", "d.png", "red/deep/e.png", "green/cafe\u0301.png", "green/caf\u00e9.png",
     "red/f.heic", "g", "all.zip", "00000.tar", "00000.parquet", "data.arrow", "state.json", "dataset_dict.json",
     "metadata.csv", "metadata.jsonl", "train/h.png", "test/i.png", ".hidden/j.png", "t.parquet", "notes.txt"]
)  # fmt: skip
PICTURES = (".png", ".jpg", ".heic") if find_spec("pillow_heif") else (".png", ".jpg")
CONTENTS = st.sampled_from(
    [picture(1), picture(2)[:50], b"", b"{}", b"[]", b"file_name,weather\nred/a.png,sun\n", b"file_name\n", b"\xff\xfe",
     b'{"file_name": "d.png", "label": 7}\n', b"PAR1", b"file_name,file_name\na,b\n", b'{"_data_files": [{}]}']
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, CONTENTS, max_size=6), st.booleans())
def test_any_layout_of_a_folder_is_read_or_refused_and_every_picture_is_a_row_or_counted(
    tmp_path: Path, layout: dict[str, bytes], linked: bool
) -> None:
    folder = tmp_path / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in layout.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if linked:
        (folder / "again").symlink_to(folder)
    try:
        table = LabelledTable(str(folder))
        keys = table.keys.to_pylist()
        table.fetch(range(len(table)))
        assert table.labels.num_rows == len(keys)
    except InputError:
        return
    read = [name for name in layout if name.lower().endswith(PICTURES) and not name.startswith(".")]
    assert sorted(keys) == sorted(read)
    others = {name for name in layout if name not in read and not name.startswith("metadata.")}
    hidden = sum(name.startswith(".") for name in layout)
    counts = table.left_out.counts.items()
    assert sum(n for reason, n in counts if "metadata" not in reason and "link" not in reason) >= len(others) - hidden
