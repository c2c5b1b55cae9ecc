"""Home folders, `.env` files and the launch environment."""

from __future__ import annotations

import multiprocessing
import os
import stat
import uuid
from pathlib import Path

import pytest

from dsh.cordis import Context
from dsh.loader.dotenv import parse_dotenv, refused_name
from dsh.loader.environment import (
    DotenvRefusedError,
    EnvLayer,
    LaunchEnvironment,
    launch_environment_of,
    load_launch_environment,
)
from dsh.loader.home import Home, resolve_home
from dsh.models.deepseek.anonymous_id import anonymous_id

# --- home -------------------------------------------------------------------------------------------------------------


def test_b14a_home_explicit_then_variable_then_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_home("/x", {"DSH_HOME": "/y"}).path == Path("/x")
    assert resolve_home(None, {"DSH_HOME": "/y"}).path == Path("/y")
    assert resolve_home("  ", {"DSH_HOME": " "}).path == tmp_path / ".dsh"
    assert resolve_home(None, {}).path == tmp_path / ".dsh"
    assert resolve_home("~/a", {}).path == tmp_path / "a"
    assert resolve_home("~", {}).path == tmp_path
    assert resolve_home("~\\a", {}).path == tmp_path / "a"
    assert resolve_home("~root/a", {}).path == Path.cwd() / "~root/a"


def test_b14b_a_home_is_never_shown_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default, other = resolve_home(None, {}), resolve_home(None, {"DSH_HOME": str(tmp_path / "x")})
    assert default.show(default.join("settings.yaml")) == "~/.dsh/settings.yaml"
    assert other.show(other.join("a", "b")) == "$DSH_HOME/a/b"
    assert other.show(other.path) == "$DSH_HOME"
    assert other.show("/elsewhere") == "/elsewhere"


def test_b14c_the_anonymous_id_is_made_once_and_mended(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", "$DSH_HOME")
    first = anonymous_id(home)
    assert uuid.UUID(first).version == 4
    assert anonymous_id(home) == first
    file = home.join(".anonymous-user-id")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("not an id")
    second = anonymous_id(home)
    assert second != first
    assert anonymous_id(home) == second
    assert [entry.name for entry in home.path.iterdir()] == [".anonymous-user-id"]


def _id_of(path: str) -> str:
    return anonymous_id(Home(Path(path), "$DSH_HOME"))


def test_b14d_racing_processes_agree_on_one_id(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert len(set(pool.map(_id_of, [str(tmp_path / "home")] * 12, chunksize=1))) == 1


def test_b14e_a_home_that_cannot_be_written_gives_an_id_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert uuid.UUID(anonymous_id(Home(tmp_path / "file" / "home", "$DSH_HOME"))).version == 4


# --- the snapshot -----------------------------------------------------------------------------------------------------


def layers() -> list[EnvLayer]:
    return [
        EnvLayer("user-env", {"A": "user", "B": "user", "C": "user"}, "/home/.env"),
        EnvLayer("process", {"A": "process", "E": ""}),
        EnvLayer("project-env", {"A": "project", "B": "project", "E": "project"}, "/start/.env"),
    ]


def test_b14f_trust_decides_whatever_the_order_and_each_value_says_where_it_is_from() -> None:
    environment = LaunchEnvironment(layers())
    found = {name: environment.get(name) for name in "ABCE"}
    assert {name: (e.value, e.source, e.path) for name, e in found.items() if e is not None} == {
        "A": ("process", "process", None),
        "B": ("project", "project-env", "/start/.env"),
        "C": ("user", "user-env", "/home/.env"),
        "E": ("", "process", None),
    }
    assert environment.get("Z") is None
    picked = environment.get_from("A", ("user-env", "project-env"))
    assert picked is not None and picked.value == "project"
    assert environment.values == {"A": "process", "B": "project", "C": "user", "E": ""}


def test_b14g_the_snapshot_is_immutable_and_detached() -> None:
    values = {"A": "first"}
    environment = LaunchEnvironment([EnvLayer("process", values)])
    values["A"] = "2"
    assert environment.values["A"] == "first"
    with pytest.raises(TypeError):
        environment.values["A"] = "3"  # type: ignore[index]
    assert "first" not in repr(environment)


def test_b14h_names_ignore_case_on_windows_only() -> None:
    assert LaunchEnvironment([EnvLayer("process", {"Path": "x"})], windows=True).get("PATH") is not None
    assert LaunchEnvironment([EnvLayer("process", {"Path": "x"})], windows=False).get("PATH") is None


async def test_b14i_without_a_launcher_the_inherited_variables_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_TEST_INHERITED", "x")
    async with Context() as root:
        found = launch_environment_of(root).get("DSH_TEST_INHERITED")
        assert found is not None and found.source == "process"
        given = LaunchEnvironment(layers())
        root.provide("launchEnvironment", given)
        assert launch_environment_of(root) is given


# --- .env -------------------------------------------------------------------------------------------------------------


def test_b18a_the_grammar_of_env_files() -> None:
    text = (
        "\ufeffPLAIN=a b  # comment\r\n"
        "export EXPORTED = x\n"
        "   # a comment\n"
        "EMPTY=\n"
        "HASH=a#b\n"
        "SINGLE='a \\n $X # b'  # c\n"
        'DOUBLE="a\\n\\"b\\" $X \\$Y \\q"\n'
        'MULTI="one\ntwo"\n'
        "MULTI1='one\ntwo'\n"
        "LAST=1\nLAST=2\n"
        "not an assignment\n"
        'OPEN="never closed\n'
        "AFTER=ok\n"
        "TRAILING='x' y\n"
    )
    parsed = parse_dotenv(text)
    assert parsed.values == {
        "PLAIN": "a b",
        "EXPORTED": "x",
        "EMPTY": "",
        "HASH": "a#b",
        "SINGLE": "a \\n $X # b",
        "DOUBLE": 'a\n"b" $X $Y \\q',
        "MULTI": "one\ntwo",
        "MULTI1": "one\ntwo",
        "LAST": "2",
        "AFTER": "ok",
    }
    assert parsed.bad_lines == (14, 15, 17)


@pytest.mark.parametrize(
    "name",
    [
        "DSH_HOME", "dsh_telemetry_disabled", "XDG_CONFIG_HOME", "DYLD_INSERT_LIBRARIES", "BASH_FUNC_x%%", "PATH",
        "Path", "HOME", "USERPROFILE", "SHELL", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV",
        "ENV", "PERL5LIB", "PERL5OPT", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT",
        "GIT_DIR", "EDITOR", "VISUAL", "PAGER", "BROWSER", "HTTP_PROXY", "http_proxy", "https_proxy", "all_proxy",
        "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "DEEPSEEK_BASE_URL", "DEEPSEEK_SEARCH_BASE_URL",
    ],
)  # fmt: skip
def test_b18b_names_that_steer_the_process_are_refused(name: str) -> None:
    assert refused_name(name)


@pytest.mark.parametrize("name", ["DEEPSEEK_API_KEY", "OPENAI_API_KEY", "DATABASE_URL", "GIT_AUTHOR_NAME", "MY_PATH"])
def test_b18c_ordinary_names_are_not(name: str) -> None:
    assert not refused_name(name)


def folders(tmp_path: Path, project: str | None, user: str | None) -> tuple[Path, Home]:
    start, home = tmp_path / "start", tmp_path / "home"
    for folder, text in ((start, project), (home, user)):
        folder.mkdir()
        if text is not None:
            (folder / ".env").write_text(text)
    return start, Home(home, "$DSH_HOME")


def test_b18d_layers_and_what_is_there_already_is_never_replaced(tmp_path: Path) -> None:
    start, home = folders(tmp_path, "A=project\nB=project\nE=project\n", "A=user\nB=user\nC=user\n")
    environ = {"A": "inherited", "E": ""}
    environment = load_launch_environment(home, start, environ)
    assert environ == {"A": "inherited", "E": "", "B": "project", "C": "user"}
    assert environment.values == environ
    found = environment.get("C")
    assert found is not None and (found.source, found.path) == ("user-env", str(home.path / ".env"))
    environ["B"] = "later"
    assert environment.values["B"] == "project"


@pytest.mark.parametrize(("project", "user"), [("A=1\n", "B=1\nhttps_proxy=x\n"), ("Path=x\nA=1\n", "B=1\n")])
def test_b18e_one_refused_name_applies_neither_file(tmp_path: Path, project: str, user: str) -> None:
    start, home = folders(tmp_path, project, user)
    environ: dict[str, str] = {}
    with pytest.raises(DotenvRefusedError) as caught:
        load_launch_environment(home, start, environ)
    assert environ == {}
    assert ("https_proxy" if "https" in user else "Path") in str(caught.value)
    assert (".env sets" in str(caught.value)) and str(home.path) not in str(caught.value)


def test_b18f_a_home_that_is_the_start_folder_is_read_once(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nbroken\n")
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    environment = load_launch_environment(Home(link, "$DSH_HOME"), tmp_path, {})
    found = environment.get("A")
    assert found is not None and found.source == "project-env"
    assert len(environment.warnings) == 1


def test_b18g_an_unreadable_file_is_a_warning_and_a_folder_of_that_name_nothing(tmp_path: Path) -> None:
    start, home = folders(tmp_path, None, None)
    (start / ".env").mkdir()
    (home.path / ".env").write_bytes(b"A=\xff\n")
    environment = load_launch_environment(home, start, {})
    assert environment.values == {}
    assert environment.warnings == ("$DSH_HOME/.env is not UTF-8 text, ignored",)
    os.unlink(home.path / ".env")
    (home.path / ".env").symlink_to(home.path / ".env")
    assert "cannot be read" in load_launch_environment(home, start, {}).warnings[0]
