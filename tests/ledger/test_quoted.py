"""The tables of quoted numbers: what is read, and what is refused by name."""

from pathlib import Path

import pytest

from t1core.ledger import read_quoted

ROOT = Path(__file__).resolve().parents[2]
HEAD = "key,x,value,unit,what,source,place,shown\n"
ROW = "gap/with,,0.013,nats,the gap,blog,sec. 5,fidelity\n"


def _tables(folder, text):
    (folder / "one.csv").write_text(text)
    return folder


def test_a_number_is_found_by_its_key_and_a_topic_by_its_first_part(tmp_path):
    quoted = read_quoted(_tables(tmp_path, HEAD + ROW + "gap/without,3,0.021,nats,before,blog,sec. 5,\n"))
    assert quoted.value("gap/with") == 0.013
    assert quoted.values("gap") == {"with": 0.013, "without": 0.021}
    topic = quoted.topic("gap")
    assert topic["x"].isna().tolist() == [True, False]
    assert topic["table"].tolist() == ["one", "one"]
    with pytest.raises(KeyError, match="no quoted number 'gap/none'"):
        quoted.value("gap/none")
    with pytest.raises(KeyError, match="no quoted topic 'none'"):
        quoted.topic("none")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("key,value\na/b,1\n", r"one\.csv has the columns \['key', 'value'\]"),
        (HEAD + ROW + ROW, "gap/with is given twice"),
        (HEAD + ROW.replace("0.013", "about 1"), "gap/with: value nan"),
        (HEAD + ROW.replace("blog", "hearsay"), "source 'hearsay'"),
        (HEAD + ROW.replace("gap/with", "gap"), "gap: value 0.013"),
    ],
)
def test_a_table_that_is_not_one_is_refused(tmp_path, text, says):
    with pytest.raises(ValueError, match=says):
        read_quoted(_tables(tmp_path, text))


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no tables"):
        read_quoted(tmp_path)


def test_every_number_says_what_it_is_and_where_it_stands_and_is_shown_in_a_notebook_that_exists():
    frame = read_quoted(ROOT / "figures" / "quoted").frame
    assert frame[(frame["what"].str.len() < 3) | (frame["place"] == "")].empty
    notebooks = {path.stem for path in (ROOT / "notebooks" / "analyses").glob("*.ipynb")}
    assert set(frame["shown"]) - {""} <= notebooks
