"""Cards: the TOML next to a prototxt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai import ParseError, Preprocess
from chai.graph.source import Transform
from chai.zoo import card_file as cards
from chai.zoo.card import Card


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "this is no TOML"),
        ("titel = 'x'", "unknown key 'titel'"),
        ("[preprocess]\nmeen = [1]", "no key 'meen'"),
        ("[preprocess]\nchannels = 'bgr'", "channels are 'bgr'"),
        ("[preprocess]\nresize = 256", "resize .*: expected height and width"),
        ("[preprocess]\nmean = ['a']", "mean: expected numbers"),
        ("[preprocess]\nscale = true", "scale: expected numbers"),
        ("[preprocess]\nscale = [1, 'a']", "scale: expected numbers"),
        ("[preprocess]\nraw_scale = [1, 2]", "raw_scale: expected one number"),
        ("[preprocess]\nresize = [0, 5]", "resize"),
        ("preprocess = 3", "expected a table"),
        ("labels = 'synset_words.txt'", "labels: expected a list of texts"),  # a file names no other file
    ],
)
def test_a_card_that_is_wrong_says_where(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(ParseError, match=words) as caught:
        cards.read_card(tmp_path / "net.prototxt")
    assert caught.value.path.endswith("net.toml")


@pytest.mark.parametrize("number", ["7" * 5000, "0x" + "f" * 5000])
@pytest.mark.parametrize("key", ["title", "preprocess.scale", "weights.file", "detect.head"])
def test_a_number_of_thousands_of_digits_is_refused(key: str, number: str) -> None:
    with pytest.raises(ParseError, match=r"net.toml: this is no TOML: .*4300"):
        cards.parse_card(f"{key} = {number}", Path("net.toml"))


def test_a_card(tmp_path: Path) -> None:
    assert cards.read_card(tmp_path / "net.prototxt") == Card()
    (tmp_path / "net.toml").write_text(
        'title = "t"\nlabels = ["a", "b"]\n[preprocess]\nmean = [1, 2.5, 3]\ncrop = [5, 7]\n'
    )
    card = cards.read_card(tmp_path / "net.prototxt")
    assert card.labels == ("a", "b")
    assert card.preprocess == Preprocess(mean=(1, 2.5, 3), crop=(5, 7), chosen=True)


def test_a_scale_for_each_channel_is_read_and_written(tmp_path: Path) -> None:
    how = Preprocess().with_options(scale=(0.5, 1e-7, 2.0))
    (tmp_path / "net.toml").write_text(cards.with_preprocess("", how, Path("net.toml")))
    assert cards.read_card(tmp_path / "net.prototxt").preprocess == how


CARD = """# mine
title = "Cats"
[preprocess]   # as trained
resize = [256, 256]
mean = [1, 2, 3]

[weights]
source = "somewhere"
"""
HOW = Preprocess().with_options(crop=(4, 6), channels="RGB", mean=(0.5, 104.0, 1e-7), raw_scale=1.0, scale=0.1)


def test_a_cards_preprocessing_can_be_replaced() -> None:
    text = cards.with_preprocess(CARD, HOW, Path("x.toml"), "a note")
    before, after = CARD.split("[preprocess]")[0], CARD[CARD.index("[weights]") :]
    assert text.startswith(before) and text.endswith("\n" + after) and "# a note\n" in text and "256" not in text
    again = cards.with_preprocess(text, HOW, Path("x.toml"))
    assert cards.parse_card(again.split("[weights]")[0], Path("x.toml")).preprocess == HOW
    assert cards.with_preprocess(CARD, Preprocess(), Path("x.toml")) == before + after


@pytest.mark.parametrize("text", ["", CARD])
@pytest.mark.parametrize("comment", ["", "mean: m.npy"])
def test_defaults_that_were_chosen_stay_chosen(text: str, comment: str) -> None:
    """Else the prototxt's transform_param would take their place."""
    how = Preprocess().with_options(scale=1.0)
    text = cards.with_preprocess(text, how, Path("x.toml"), comment).split("[weights]")[0]
    card = cards.parse_card(text, Path("x.toml"))
    assert card.preprocess_after(Transform(scale=0.00390625)) == how


@pytest.mark.parametrize("text", ["", 'title = "x"', 'title = "x"\n\n\n', "[preprocess]", "[preprocess]\nscale = 9"])
def test_a_card_gets_preprocessing(text: str) -> None:
    card = cards.parse_card(cards.with_preprocess(text, HOW, Path("x.toml")), Path("x.toml"))
    assert card.preprocess == HOW and card.title == ("x" if "title" in text else "")


def test_a_mean_image_has_no_place_in_a_card() -> None:
    how = Preprocess().with_options(mean=np.ones((3, 4, 6)), scale=2.0)
    assert cards.with_preprocess("", how, Path("x.toml"), "mean: m.npy") == "[preprocess]\n# mean: m.npy\nscale = 2.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preprocess = { scale = 2 }\n", "cannot be replaced"),
        ("preprocess.scale = 2\n", "cannot be replaced"),
        ("title = '''\n[preprocess]\nis not what it seems'''\n", "cannot be replaced"),
        ("preprocess = [", "this is no TOML"),
    ],
)
def test_a_card_that_cannot_be_changed_is_refused_before_it_is_harmed(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        cards.with_preprocess(text, HOW, Path("x.toml"))
