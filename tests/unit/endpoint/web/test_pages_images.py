"""Images on pages: of a dataset of failures, and of the captions of a search for failures."""

import re

from c2b_ray.endpoint.api import reads

FIGURE = re.compile(r'<img src="([^"]+)" alt="([^"]*)"')
ANSWER = re.compile(r'<span class="answer">([^<]*), taken for ([^<0-9]*?) ?0?[.0-9]*</span>')


def test_a_dataset_shows_its_images_by_label_and_what_they_were_taken_for(endpoint, visitor, dataset_id):
    base = f"/ui/audits/{dataset_id}"
    assert f'href="{base}/gallery"' in visitor("a").get(base).text
    every = visitor("a").get(f"{base}/gallery").text
    total = int(re.search(r"(\d+) images", every)[1])
    rows = reads.open_dataset(str(endpoint.run_path(dataset_id))).rows
    assert total == rows > 24
    assert len(FIGURE.findall(every)) == 24
    last = visitor("a").get(f"{base}/gallery?start={total - 1}").text
    assert len(FIGURE.findall(last)) == 1
    label, predicted = ANSWER.findall(every)[0]
    chosen = visitor("a").get(f"{base}/gallery?label={label}&predicted={predicted}").text
    assert 0 < int(re.search(r"(\d+) images?", chosen)[1]) <= total
    assert set(ANSWER.findall(chosen)) == {(label, predicted)}
    source, caption = FIGURE.findall(chosen)[0]
    assert caption
    picture = visitor("a").get(f"{base}/{source}")
    assert (picture.status_code, picture.headers["content-type"]) == (200, "image/png")
    assert visitor("b").get(f"{base}/gallery").status_code == 404
    assert visitor("b").get(f"{base}/{source}").status_code == 404
    assert visitor("a").get(f"{base}/images/nothing").status_code == 404


def test_an_image_is_read_from_its_own_shard_alone(endpoint, visitor, dataset_id):
    base = f"/ui/audits/{dataset_id}"
    first = FIGURE.findall(visitor("a").get(f"{base}/gallery").text)[0][0]
    shards = sorted((endpoint.run_path(dataset_id) / "shards").iterdir())
    assert len(shards) > 1
    kept = {path: path.read_bytes() for path in shards[1:]}
    try:
        for path in shards[1:]:
            path.write_bytes(b"")
        assert visitor("a").get(f"{base}/{first}").status_code == 200
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def test_a_search_for_failures_shows_its_captions_and_the_failures_of_each(visitor, failures_id):
    base = f"/ui/audits/{failures_id}"
    assert f'href="{base}/captions"' in visitor("a").get(base).text
    page = visitor("a").get(f"{base}/captions").text
    assert int(re.search(r"(\d+) captions", page)[1]) == page.count('href="caption?number=')
    cells = re.findall(r"</td><td>([0-9.e+-]+|∞)</td><td>[^<]*</td>\s*<td class=\"word\">", page)
    rates = [float(text.replace("∞", "inf")) for text in cells]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    some = visitor("a").get(f"{base}/captions?label=fly&verdict=failure&sort=rate").text
    assert 0 < some.count("caption?number=") < page.count("caption?number=")
    assert "crayfish" not in re.search(r"<tbody>(.*)</tbody>", some, re.S)[1]
    link = re.search(r'href="(caption\?number=\d+)"', some)[1]
    shown = visitor("a").get(f"{base}/{link}").text
    pictures = FIGURE.findall(shown)
    assert pictures
    assert "bee" in shown
    assert "confirmation" in shown
    for path in (pictures[0][0], link, "captions"):
        assert visitor("a").get(f"{base}/{path}").status_code == 200
        assert visitor("b").get(f"{base}/{path}").status_code == 404
    for wrong in ("examples/0/999", "examples/999999/0", "examples/x/0", "caption?number=99999", "examples/-1/0"):
        assert visitor("a").get(f"{base}/{wrong}").status_code == 404, wrong


def test_pages_of_one_kind_are_none_of_another(visitor, job_id, dataset_id, failures_id):
    for path in (f"{job_id}/gallery", f"{failures_id}/gallery", f"{job_id}/captions", f"{dataset_id}/captions",
                 f"{failures_id}/slices", f"{dataset_id}/slices"):  # fmt: skip
        assert visitor("a").get(f"/ui/audits/{path}").status_code == 409, path


def test_the_report_that_a_dataset_does_not_have_is_answered_with_where_its_rows_are(endpoint, dataset_id):
    answer = endpoint.as_("a").get(f"/v1/audits/{dataset_id}/report")
    assert answer.status_code == 404
    assert "its table 'rows' has its rows, and so have its exports: csv, json, parquet" in answer.json()["detail"]
    assert endpoint.as_("a").get(f"/v1/audits/{dataset_id}/tables/rows").status_code == 200
