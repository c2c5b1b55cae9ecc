"""Names of directories: legal, distinct, and the same ones other builds derive."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.sessions.paths import decode_id, encode_id, is_project_dir, project_dir, project_key, session_dir

IDS = ["a", ".", "..", "a/b", "A", "é", "😀", "a~b", "con"]


def test_b10a_every_id_round_trips_to_a_directory_of_its_own() -> None:
    names = [encode_id(session_id) for session_id in IDS]
    assert len(set(names)) == len(IDS)
    assert [decode_id(name) for name in names] == IDS
    assert all("/" not in name and name not in (".", "..") for name in names)


def test_b10b_workspaces_get_directories_of_their_own(tmp_path: object) -> None:
    keys = [project_key(f"/home/{session_id}") for session_id in ("a", "A", "é", "😀", "a~b", "con", "a b")]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("cwd", "key"),
    [
        ("/home/me/my project", "home-me-my~0020project"),
        ("C:\\Users\\x", "C-Users-x"),
        ("/", "root"),
        ("", "root"),
        ("/a//b:/c", "a-b-c"),
        ("/~x", "~007Ex"),
        ("/😀", "~D83D~DE00"),
        ("/-dash", "dash"),
    ],
)
def test_project_key_keeps_safe_characters_and_escapes_the_rest(cwd: str, key: str) -> None:
    assert project_key(cwd) == key


def test_project_key_fits_a_file_name() -> None:
    assert len(project_dir("/" + "x" * 4000).encode()) == 255


def test_dots_and_separators_of_an_id_are_escaped() -> None:
    assert encode_id(".") == "~002E"
    assert encode_id("..") == "~002E~002E"
    assert encode_id("a/b\\c:d") == "a~002Fb~005Cc~003Ad"
    assert encode_id("...") == "..."


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        encode_id("")


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_b10c_encoding_is_injective(session_id: str) -> None:
    assert decode_id(encode_id(session_id)) == session_id


@pytest.mark.parametrize("name", ["", "a b", "a~00", "~zzzz", "~0041", ".", ".."])
def test_names_that_no_id_gives_are_not_decoded(name: str) -> None:
    assert decode_id(name) is None


def test_a_session_without_workspace_has_its_place() -> None:
    assert session_dir("/root", None, "s") == os.path.join("/root", "_no-cwd", "s")
    assert session_dir("/root", "/w", "s") == os.path.join("/root", "--w--", "s")
    assert is_project_dir("_no-cwd") and is_project_dir("--w--") and not is_project_dir("----")
