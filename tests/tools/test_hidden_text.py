"""F23: what hides is taken out, and real writing in any language comes back as it was."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_toolset.catalog.pins.policy import lookalikes
from mcp_toolset.tools.hidden_text import cleaned, cleaned_metadata, hidden_in, plain_to_see, visible

REAL = {
    "Persian, joiners inside words": "می‌خواهم کتاب‌ها را بخوانم",
    "Persian after a Latin word": "فایل PDF‌ها",
    "Hindi, a joiner after a virama": "क्‍ष और क्‍",
    "Sinhala": "ශ්‍රී ලංකා",
    "Malayalam": "അവന്‍",
    "Mongolian, a vowel selector": "ᠪᠢᠴᠢᠭ᠌",
    "Khmer, spaces of no width": "ភាសា\u200bខ្មែរ",
    "Thai, spaces of no width": "ลูก\u200bค้า",
    "Hebrew with points and marks of direction": "שָׁלוֹם\u200f (C++\u200e) עולם",
    "Arabic with harakat": "بِسْمِ ٱللَّهِ",
    "Arabic with an isolate": "مرحبا \u2066git\u2069 بالعالم",
    "Arabic letter mark": "العدد \u061c5",
    "a family": "👨‍👩‍👧‍👦",
    "skin and profession": "👩🏽‍🚀 🧑‍⚕️",
    "flags": "🏳️‍🌈 🏴‍☠️ 🇺🇦 🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "hearts and keycaps": "❤️‍🔥 1️⃣ #️⃣ ©️ ⚠️ ☎︎ 👁️‍🗨️",
    "Japanese names": "葛\U000e0100飾区",
    "mathematics": "≨\ufe00 ∑ x² → y",
    "German": "Straße, Größe; Anführung „so“",
    "Vietnamese, composed and not": "Tiếng Việt Tie\u0302\u0301ng",
    "Korean and Chinese": "한국어 中文，全角！",
    "code and lines": "a\tb\r\nc `rm -rf` \\u200b \\x1b[0m",
}

HOSTILE = {
    "tag characters": (f"Add.{''.join(chr(0xE0000 + ord(c)) for c in 'run rm')} Numbers", "Add. Numbers"),
    "tags of a flag that is none": ("🏴" + "\U000e0068\U000e0069\U000e007f", "🏴"),
    "a run of selectors": ("😀" + "\ufe01\ufe02\U000e0101\U000e01ef", "😀"),
    "selectors on a letter": ("a\ufe0fb\ufe00", "ab"),
    "zero width in a word": ("pass\u200bword\u2060s\ufeff", "passwords"),
    "joiners as bits": ("a\u200c\u200d\u200c\u200db", "ab"),
    "joiners as bits beside Persian": ("می\u200c\u200d\u200c\u200dخ", "میخ"),
    "an override": ("\u202etxt.exe\u202c", "txt.exe"),
    "an override in Hebrew": ("שלום \u202eabc\u202c", "שלום abc"),
    "isolates without anything to isolate from": ("a \u2067b\u2069", "a b"),
    "an isolate that is left open": ("שלום \u2067abc", "שלום abc"),
    "colour": ("\x1b[1;31mred\x1b[0m", "red"),
    "a link": ("\x1b]8;;http://x.test\x07click\x1b]8;;\x1b\\", "click"),
    "a title of the window": ("\x1b]0;owned\x07hi", "hi"),
    "one byte sequences": ("\x9b31mred\x9d0;x\x9c", "red"),
    "an escape inside an escape": ("\x1b\x1b[31m[31mx", "[31mx"),
    "controls": ("a\x00b\x08c\x7fd", "abcd"),
    "fillers": ("a\u3164b\u115f\uffa0", "ab"),
    "a soft hyphen": ("rm\u00ad -rf", "rm -rf"),
    "separators of lines": ("one\u2028two\u2029three\x85four", "one\ntwo\nthree\nfour"),
    "a lone surrogate": ("a\ud800b", "ab"),
}


@pytest.mark.parametrize("text", REAL.values(), ids=REAL)
def test_f23_real_writing_comes_back_as_it_was(text: str):
    assert visible(cleaned(text)) == visible(text)
    assert hidden_in(text) == ()


@pytest.mark.parametrize(("text", "plain"), HOSTILE.values(), ids=HOSTILE)
def test_f23_what_hides_is_taken_out_and_named(text: str, plain: str):
    assert visible(cleaned(text)) == visible(plain)
    assert hidden_in(text)


def test_f23_what_was_found_is_counted_by_kind():
    assert hidden_in("a\u200b\u200b \U000e0041 \u202e") == (
        "zero-width spaces (2)",
        "tag characters (1)",
        "bidirectional controls (1)",
    )


tricky = st.text(
    st.sampled_from(
        "aB1# \n\u05d0\u0645\u06cc\u0915\u094d\u1820\u0e01\u845b\u2211\u2764\U0001f468\U0001f3fd\U0001f3f4"
        "\u200b\u200c\u200d\u200e\u200f\u061c\u034f\u2066\u2067\u2069\u202e\ufe0e\ufe0f\ufe00\u180b"
        "\U000e0100\U000e0067\U000e0062\U000e0065\U000e006e\U000e007f\x1b[]m\x07\\\x9b\u2028\x85\xad\ud800"
    ),
    max_size=30,
)


@given(tricky | st.text())
def test_f23_cleaning_twice_is_cleaning_once(text: str):
    once = cleaned(text)
    assert cleaned(once) == once
    assert hidden_in(once) == ()


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_f23_letters_numbers_and_signs_are_never_altered(text: str):
    fillers = "[\u115f\u1160\u2800\u3164\uffa0]"
    assert cleaned(text) == re.sub(fillers, "", text)


@given(tricky | st.text())
def test_f23_nothing_is_added_and_nothing_changes_places(text: str):
    rest = iter(re.sub("[\u2028\u2029\x85]", "\n", text))
    assert all(any(character == other for other in rest) for character in cleaned(text))


@given(tricky | st.text())
def test_f23_nothing_that_always_hides_is_left(text: str):
    left = cleaned(text)
    assert not re.search("[\x1b\u202a-\u202e\u2060-\u2064\ufeff\U000e0001]", left)
    assert not any(unicodedata.category(one) == "Cs" for one in left)


@given(tricky | st.text())
def test_f23_what_is_made_visible_is_the_same_json(text: str):
    shown = plain_to_see(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(shown) == {text: text}
    assert plain_to_see(shown) == shown


def test_f23_metadata_is_cleaned_throughout_and_not_copied_without_need():
    plain = {"title": "Notes", "arguments": [{"name": "q", "required": True}], "n": 1.5}
    assert cleaned_metadata(plain) is plain
    assert cleaned_metadata({"ti\u200btle": ["a\x1b[0m", {"x": "\u202eb"}, None, 3]}) == {
        "title": ["a", {"x": "b"}, None, 3]
    }


@pytest.mark.parametrize(
    "name", ["search", "поиск_search", "日本tool", "Δt", "m_µm", "straße", "سرچ-x", "한글Tool"]
)
def test_f23_a_name_in_any_script_is_honest(name: str):
    assert lookalikes(name) == ""


@pytest.mark.parametrize(
    "name", ["p\u0430y", "se\u0430rch_files", "\uff50\uff41\uff59", "g\u03bfogle", "\U0001d429ay"]
)
def test_f23_letters_of_another_script_among_latin_ones_are_seen_through(name: str):
    assert lookalikes(name)


@pytest.mark.parametrize(
    "text", ["\u200c" * 200_000, "\u05d0\u2066\u200e" * 60_000, "\x1b[" * 100_000, "\x1b]" * 100_000]
)
def test_f23_hostile_lengths_take_no_long_time(text: str):
    assert len(cleaned(text)) < len(text)
