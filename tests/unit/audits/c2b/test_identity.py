"""Pictures that were replaced under their names are noticed: by a rerun, by a comparison, by an index."""

from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from c2b_ray.audits.c2b.drawing import CellDrawing
from c2b_ray.audits.c2b.labelled import from_labels
from c2b_ray.audits.c2b.run import check_unchanged, open_c2b_run
from c2b_ray.audits.c2b.sampling.selection import cells_of
from c2b_ray.audits.kit.backend import HereBackend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.audits.runs import compare
from c2b_ray.config import read_audit
from c2b_ray.engine.here import InProcess
from c2b_ray.engine.index import LISTED, MADE_BY, built
from c2b_ray.engine.sources.files import sizes
from c2b_ray.errors import RunError
from c2b_ray.models.index.plan import MANIFEST
from c2b_ray.steps.draw import fetch, wanted
from c2b_ray.storage import files
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.run import load_run
from c2b_ray.tables import PREDICTIONS, SCORES


def picture(path, seed):
    data = BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(data, "PNG")
    path.write_bytes(data.getvalue())


@pytest.fixture
def photos(tmp_path):
    rows = ["image,target_class,weather"]
    for i in range(8):
        picture(tmp_path / f"{i}.png", i)
        rows.append(f"{i}.png,bus,{('fog', 'rain')[i % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows))
    return tmp_path


def asked_of(photos):
    images = {"source": "labelled", "table": str(photos / "t.csv")}
    return read_audit({"task": "t", "classes": ["bus"], "classifier": "m", "images": images})


def measure(photos, name):
    """A finished run of the pictures as they are."""
    asked = asked_of(photos)
    with open_c2b_run(photos / name, "0123456789abcdef0123", asked.model_dump(mode="json")) as run:
        plan = from_labels(asked, run, HereBackend(), [], Steps())
        images = fetch(wanted(plan.draws.distinct(), plan.draws.revision), LabelledTable(str(photos / "t.csv")))
        answers = [
            {"prediction_id": i, "image_id": i, "classifier": "m", "revision": "1", "predicted_class": "bus"}
            for i in images["image_id"].to_pylist()
        ]
        for table, rows in (("images", images), ("predictions", pa.Table.from_pylist(answers, PREDICTIONS))):
            files.make_directory(run.location(table))
            files.write_table(run.location(f"{table}/part-0.parquet"), rows)
        CellDrawing([plan], run, None, Steps()).draw(dict.fromkeys(cells_of(run.captions), 100))
        run.write("scores", SCORES.empty_table())
        run.update({"status": "finished"})
    return run


def test_a_rerun_on_replaced_pictures_is_refused_and_names_the_first(photos):
    run = measure(photos, "run")
    measure(photos, "run")  # the same files: it goes on
    for name in ("5.png", "3.png"):
        picture(photos / name, 99)
    with pytest.raises(RunError, match=r"2 of its 8 images are other files now.*'3.png'; give another --out"):
        measure(photos, "run")
    assert load_run(run.path).record.status == "finished"


def test_a_file_that_is_gone_is_no_other_file(photos):
    run = measure(photos, "run")
    (photos / "3.png").unlink()
    from_labels(asked_of(photos), run, HereBackend(), [], Steps())


def test_an_index_that_holds_its_images_is_not_read_again(photos):
    class Index:
        def fetch(self, ids):
            assert not ids
            return pa.table({"key": pa.array([], pa.string()), "bytes": pa.array([], pa.binary())})

    check_unchanged(measure(photos, "run"), lambda: pa.table({"image_id": ["x"], "row": [0]}), Index, InProcess())


def test_runs_of_other_bytes_under_the_same_names_are_not_compared(photos):
    before = measure(photos, "before")
    same = measure(photos, "same")
    assert compare(before, same).cells.num_rows == 2
    picture(photos / "2.png", 99)
    after = measure(photos, "after")
    with pytest.raises(RunError, match=r"1 images that .*before and .*after share.*'2.png'"):
        compare(before, after)


def test_an_index_of_a_folder_that_has_changed_since_is_refused(photos, tmp_path):
    made_by = {"images": str(photos)}
    listed = sizes(str(photos))
    out = str(tmp_path / "index")
    assert built(out, made_by, listed) is None
    files.make_directory(out)
    files.write_bytes(f"{out}/{MANIFEST}", b"{}")
    files.write_bytes(f"{out}/{MADE_BY}", b'{"made_by": {"images": "%s"}}' % str(photos).encode())
    files.write_table(f"{out}/{LISTED}", listed)
    assert built(out, made_by, listed) == {"made_by": made_by}
    picture(photos / "new.png", 50)
    (photos / "0.png").unlink()
    (photos / "1.png").write_bytes(b"shorter")
    said = r"files 1 new \(such as 'new.png'\), 1 gone \(such as '0.png'\), 1 of another size \(such as '1.png'\)\. An"
    with pytest.raises(RunError, match=said):
        built(out, made_by, sizes(str(photos)).filter(pa.array(["index" not in n for n in names(photos)])))
    assert sizes(str(photos / "1.png")).to_pylist() == [{"name": "1.png", "size": 7}]


def names(folder):
    return sizes(str(folder))["name"].to_pylist()
