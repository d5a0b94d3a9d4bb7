"""Pages of blocks: every block is rendered, text is escaped, a page's contents list its sections."""

from __future__ import annotations

import pytest

from c2b_ray.report import blocks
from c2b_ray.report.blocks import (
    Answers,
    Article,
    Bar,
    Block,
    Cell,
    Code,
    Columns,
    Details,
    Figure,
    Findings,
    FoundRow,
    Fragment,
    Frame,
    Galleries,
    Items,
    Links,
    Page,
    Pairs,
    Paragraph,
    Section,
    Segment,
    Strips,
    Table,
    TableRow,
    Terms,
    Verdict,
    assumed,
    marked,
    setup,
    spec,
)
from c2b_ray.report.method import Fact, Method, Model, SetupNote, setup_lines, setup_notes
from c2b_ray.report.page import Answer
from c2b_ray.report.pictures import Gallery, Picture
from c2b_ray.report.words import Column, Span

EVIL = "<script>alert(1)</script>"
PICTURE = Picture("", "", EVIL, EVIL, "", "", "")
COLUMNS = [Column("Class"), Column("Accuracy", number=True), Column("Model", spec=True), Column("Share", hidden=True)]
EVERY = [
    Paragraph(EVIL, "legend"),
    Items([EVIL]),
    Terms([f"**{EVIL}** *{EVIL}* `{EVIL}`"]),
    Code(EVIL),
    Table(COLUMNS, [(EVIL, Cell(EVIL, [EVIL], EVIL, EVIL, EVIL, "#x"), EVIL, Bar([Segment("for", "40")]))], EVIL),
    Pairs([(EVIL, EVIL)], EVIL),
    Answers([Answer("for", EVIL, (Span(EVIL),), (EVIL,), "x")]),
    Findings([FoundRow("against", EVIL, EVIL, [EVIL], "x", {"class": EVIL}, EVIL, [Paragraph(EVIL)])], more=EVIL),
    Galleries([Gallery("right", EVIL, EVIL, (PICTURE,))]),
    Strips([[Frame("", EVIL, [EVIL])]], [EVIL]),
    Figure("<svg></svg>", EVIL),
    Article(EVIL, [Paragraph(EVIL)], mark=Verdict("for", EVIL, EVIL)),
    Details(EVIL, [Paragraph(EVIL)]),
    Columns([Paragraph(EVIL)]),
    Links(EVIL, [Span(EVIL, link="b.html"), Span(EVIL)]),
]


def page(*contents: Block, **fields: object) -> str:
    return Page("Title", "suffix", "kicker", [Section("Section", contents, "one", "One")], **fields).html()


def test_every_kind_of_block_is_here_and_none_lets_markup_through():
    kinds = {kind for kind in vars(blocks).values() if isinstance(kind, type) and issubclass(kind, Block)}
    assert kinds == {type(block) for block in EVERY} | {Block, Section, Fragment}
    for block in EVERY:
        html = page(block)
        assert EVIL not in html, block
        assert "&lt;script&gt;alert" in html, f"{block} shows nothing"


def test_a_table_labels_its_cells_and_aligns_its_numbers():
    rows = [TableRow(("cat", Cell("0.9", ["0.8 to 1.0", "0.9", ""]), "timm:x", Bar([])), "lead", {"class": "cat"})]
    html = page(Table(COLUMNS, rows, "Cells", filtered="cells", most=3, sortable=True))
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Cells">' in html
    assert 'data-sort data-filter="cells" data-most="3"' in html
    assert '<tr class="lead" data-class="cat"><th scope="row">cat</th>' in html
    assert '<td data-label="accuracy">0.9<small>0.8 to 1.0</small></td>' in html, "a line that repeats the text"
    assert '<td data-label="model" class="word spec">timm:x</td>' in html
    assert '<th scope="col"><span class="unseen">Share</span></th>' in html
    assert "nothing here" in page(Table(COLUMNS, [], empty="nothing here"))


@pytest.mark.parametrize(
    ("name", "label"), [("Accuracy", "accuracy"), ("φ", "φ"), ("HIT − FH", "HIT − FH"), ("Δcos", "Δcos"), ("A", "A")]
)
def test_a_label_is_the_columns_name_and_symbols_keep_their_capitals(name, label):
    assert Column(name).label == label


def test_contents_list_named_sections_where_there_are_several():
    sections = [Section(name, [Paragraph("text")], name.lower(), name) for name in ("Found", "Made")]
    html = Page("Title", "suffix", "kicker", [*sections, Section("Unlisted", [])]).html()
    assert '<a href="#found">Found</a> <a href="#made">Made</a>' in html
    assert "<nav" not in page(Paragraph("text"))


def test_a_caption_stands_beneath_its_row_of_pictures():
    rows = [[Frame("data:,a", "first", [])], [Frame("data:,b", "second", [])]]
    html = page(Strips(rows, ["of a", (Span("of b", style="said"),)], "cards"))
    assert '<div class="strips cards" tabindex="0"' in html  # it scrolls on a telephone
    assert (
        html.index("first") < html.index("of a") < html.index("second") < html.index('<span class="said">of b</span>')
    )


def test_marks_become_spans_and_nothing_else_does():
    assert marked("**q.** In `scores.parquet` *alone* 2 * 3") == (
        Span("q.", strong=True), Span(" In "), Span("scores.parquet", style="code"), Span(" "),
        Span("alone", style="italic"), Span(" 2 * 3"),
    )  # fmt: skip
    assert marked("plain") == (Span("plain"),)
    assert '<span class="spec">&lt;b&gt;</span>' in page(Paragraph((spec("<b>"),)))


def test_a_notice_names_the_first_assumptions_and_leads_to_all():
    facts = tuple(Fact(f"setting {i}", "", "", assumed=True, option="") for i in range(4))
    method = Method((), (Model("Classifier", "timm:x", "", facts),), (), (), (), "", "", shortened=False)
    html = page(*assumed(method))
    assert "4 settings of the models are assumed, because nothing states them: setting 0 of " in html
    assert "setting 3" not in html
    assert '</span>. See <a href="#made">how it was made</a>.</p>' in html
    assert assumed(Method((), (), (), (), (), "", "", shortened=False)) == []


def test_spans_link_explain_and_speak_to_screen_readers_alone():
    spans = (
        Span("▼", style="sign for"),
        Span("for", style="unseen"),
        Span("here", link="#x"),
        Span("m", True, "spec", title=EVIL),
    )
    html = page(Paragraph(spans))
    assert '<span class="sign for" aria-hidden="true">▼</span><span class="unseen">for</span>' in html
    assert '<a href="#x">here</a>' in html
    assert '<span class="spec" title="&lt;script&gt;alert(1)&lt;/script&gt;"><b>m</b></span>' in html


def test_rows_of_one_cell_head_those_beneath_and_rows_without_a_head_have_none():
    rows = [
        TableRow([Cell(name)] if name else ("v", "1"), "title" if name else "", link=name) for name in ("a", "", "b")
    ]
    columns = [Column("Value", heading=(Span("Named", style="spec"),)), Column("Images", number=True)]
    html = page(Table(columns, rows))
    assert '<tbody><tr class="title" id="a"><th colspan="2" scope="rowgroup">a</th></tr>' in html
    assert '<th scope="row">v</th>' in html
    assert '</tbody><tbody><tr class="title" id="b">' in html
    assert '<th scope="col"><span class="spec">Named</span></th>' in html
    assert '<td data-label="value" class="word">v</td>' in page(Table(columns, [("v", "1")], headed=False))


def test_what_looks_wrong_in_the_set_up_is_told_with_code_and_no_other_marks():
    note = SetupNote("net", "`a*b*c` is right.", "Why.", "See `c2b check`.", hopeless=True)
    html = page(*setup([note]))
    assert '<article class="setup" role="note">\n<h2>The set-up looks wrong</h2>' in html
    assert '<span class="spec">net</span> <code><b>a*b*c</b></code><b> is right.</b> Why. See <code>' in html
    assert "nothing below says anything about this classifier." in html
    assert setup([]) == []


@pytest.mark.parametrize("name", ["حافلة مدرسية", "אוטובוס"])
def test_a_number_stays_behind_a_name_that_is_read_from_right_to_left(name):
    text = f"Most often taken for {name}: 6 of <b>6</b>"
    html = page(Paragraph(text), Paragraph((Span(text, strong=True),)), Table([Column("A")], [(text,)]))
    assert html.count(f"taken for <bdi>{name}</bdi>: 6 of &lt;b&gt;6&lt;/b&gt;") == 3
    assert "<bdi>" not in page(Paragraph("Straßenbahn, 日本: 6"))


def test_few_right_answers_that_a_finding_explains_are_not_blamed_on_the_set_up_first() -> None:
    row = {"classifier": "onnx:n", "seen": "6 % are right.", "cause": "The likely causes are x.", "remedy": "Check."}
    manifest = {"setup": [{**row, "kind": "chance", "hopeless": False}]}
    (explained,) = blocks.setup(setup_notes(manifest, {"onnx:n": "texture"}))
    assert explained.title == "Hardly an answer is right"
    assert setup_lines(manifest, {"onnx:n": "texture"}) == [
        "set-up: 6 % are right. The answers follow the texture of the images, which may be the reason. If not, the "
        "likely causes are x. Check."
    ]
    for other in ({"kind": "chance", "hopeless": True}, {"kind": "shifted", "hopeless": False}):
        (blamed,) = blocks.setup(setup_notes({"setup": [row | other]}, {"onnx:n": "texture"}))
        assert blamed.title == "The set-up looks wrong"
    assert setup_lines(manifest, {"other": "texture"}) == ["set-up: 6 % are right. The likely causes are x. Check."]
