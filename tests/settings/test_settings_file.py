"""The settings document: real files, real writers, live edits."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.cordis import Context
from dsh.core.seams import Settings
from dsh.loader.fileio import LockTimeoutError, lock_path
from dsh.loader.home import resolve_home
from dsh.settings.document import DocumentError
from dsh.settings.file import FileSettings
from dsh.settings.offline import OfflineSettings
from dsh.settings.sections import SettingsError
from tests.settings.helpers import Consumer, Route, settings_of, until


@asynccontextmanager
async def file_settings(home: Path, **config: Any) -> AsyncIterator[tuple[Context, Any, Consumer]]:
    options = {"dshHome": str(home), "debounceMs": 20, **config}
    async with settings_of(FileSettings, options) as (root, settings, consumer):
        consumer.register(root, "agent-loop")
        consumer.register(root, "route", Route)
        await root.settle()
        yield root, settings, consumer


def save_by_rename(path: Path, text: str) -> None:
    draft = path.with_name(path.name + "~")
    draft.write_text(text)
    os.replace(draft, path)


def cap(consumer: Consumer) -> int:
    return consumer.scopes["agent-loop"].get().max_parallel_tool_calls


DOCUMENT = """\
# my settings
agent-loop: {maxParallelToolCalls: 4}   # not more

# a section nobody knows
other:
    odd:   "quoted"
    list: [1,   2]
route:
  # which model
  model: 'deepseek-flash'
  stop:
    - a   # first
    - b
"""


# --- 2: refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1.5, "x"])
async def test_b02d_a_refused_write_leaves_the_bytes_alone(tmp_path: Path, bad: Any) -> None:
    (tmp_path / "settings.yaml").write_text(DOCUMENT)
    async with file_settings(tmp_path) as (_root, settings, _consumer):
        with pytest.raises(SettingsError, match="agent-loop.maxParallelToolCalls: must be"):
            await settings.update("agent-loop", {"maxParallelToolCalls": bad})
        assert (tmp_path / "settings.yaml").read_text() == DOCUMENT
        assert not lock_path(tmp_path / "settings.yaml").exists()


async def test_b02e_a_hand_edit_that_is_wrong_keeps_the_old_value_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("agent-loop: {maxParallelToolCalls: 4}\n")
    async with file_settings(tmp_path) as (_root, settings, consumer):
        file.write_text("agent-loop: {maxParallelToolCalls: 0}\nroute: {model: m2}\n")
        await until(lambda: consumer.scopes["route"].get().model == "m2")
        assert cap(consumer) == 4
        assert "must be ≥ 1" in caplog.text
        await settings.update("route", {"model": "m3"})
        assert "maxParallelToolCalls: 0" in file.read_text()
        file.write_text("agent-loop: {maxParallelToolCalls: 6}\n")
        await until(lambda: cap(consumer) == 6)


async def test_f34_what_is_wrong_is_named_with_file_line_key_and_the_nearest_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("# mine\nagent-loop:\n  maxParallelToolCall: 4\nroute:\n  stop: none\n")
    async with settings_of(FileSettings, {"dshHome": str(tmp_path), "debounceMs": 20}) as (root, settings, consumer):
        with pytest.raises(SettingsError, match=r"^\$DSH_HOME/settings\.yaml:5: .*route\.stop: must be a list"):
            settings.register("route", Route)
        consumer.register(root, "agent-loop")
        await root.settle()
        said = "$DSH_HOME/settings.yaml:3: agent-loop.maxParallelToolCall: unknown key"
        assert f'{said}; did you mean "maxParallelToolCalls"?' in caplog.text
        file.write_text("agent-loop:\n\n  maxParallelToolCalls: 0\n")
        await until(lambda: "must be ≥ 1" in caplog.text)
        assert "$DSH_HOME/settings.yaml:3: settings section" in caplog.text


async def test_b02f_a_document_that_does_not_parse_keeps_everything_and_shows_no_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("agent-loop: {maxParallelToolCalls: 4}\n")
    async with file_settings(tmp_path) as (_root, settings, consumer):
        file.write_text("agent-loop:\n  x: [MARKER\n  y: 'MARKER\n")
        await until(lambda: "not valid YAML" in caplog.text)
        assert "$DSH_HOME/settings.yaml:" in caplog.text
        assert "MARKER" not in caplog.text
        assert str(tmp_path) not in caplog.text
        assert cap(consumer) == 4
        with pytest.raises(DocumentError, match="not valid YAML"):
            await settings.update("agent-loop", {"maxParallelToolCalls": 5})
        assert "MARKER" in file.read_text()
        file.write_text("agent-loop: {maxParallelToolCalls: 6}\n")
        await until(lambda: cap(consumer) == 6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "must be a mapping of sections"),
        ("agent-loop: 3\n", "section agent-loop must be a mapping"),
        ("a: {b: 1, b: 2}\n", "a key stands twice"),
        ("a: !secret MARKER\n", "not valid YAML"),
        ("a: {b: .nan}\n", r"section a: \$\.b is not JSON data"),
        ("\xff\xfe".encode("latin-1"), "not UTF-8"),
    ],
)
async def test_b02g_a_broken_document_at_the_start_fails_the_row(tmp_path: Path, text: Any, said: str) -> None:
    (tmp_path / "settings.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    async with Context() as root:
        with pytest.raises(DocumentError, match=said) as caught:
            await root.plugin(FileSettings, {"dshHome": str(tmp_path)})
        assert "MARKER" not in str(caught.value)


async def test_b02h_a_directory_or_a_strange_suffix_fails_the_row(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").mkdir()
    async with Context() as root:
        with pytest.raises(DocumentError, match=r"settings.yaml: cannot be read \(EISDIR"):
            await root.plugin(FileSettings, {"dshHome": str(tmp_path)})
        with pytest.raises(DocumentError, match="must end in"):
            await root.plugin(FileSettings, {"dshHome": str(tmp_path), "path": "settings.toml"})


@pytest.mark.parametrize("text", [None, "", "# only a comment\n", "agent-loop:\n"])
async def test_b02i_missing_and_empty_documents_are_empty(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "settings.yaml").write_text(text)
    async with file_settings(tmp_path) as (_root, settings, consumer):
        assert cap(consumer) == 10
        await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        written = (tmp_path / "settings.yaml").read_text()
        assert written.startswith("# only a comment\n" if text and text.startswith("#") else "agent-loop:")
        assert cap(consumer) == 3


# --- 6: the file ------------------------------------------------------------------------------------------------------


async def test_b06a_files_and_folders_are_private_and_prepare_keeps_what_is_there(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    async with file_settings(home) as (_root, settings, _consumer):
        await settings.prepare_document()
        file = home / "settings.yaml"
        assert file.read_text() == ""
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        file.write_text("# mine\n")
        await settings.prepare_document()
        assert file.read_text() == "# mine\n"
        await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert sorted(entry.name for entry in home.iterdir()) == ["settings.yaml"]


async def test_b06b_a_planted_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("agent-loop: {maxParallelToolCalls: 4}\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.yaml").symlink_to(victim)
    async with file_settings(home) as (_root, settings, _consumer):
        await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        assert victim.read_text() == "agent-loop: {maxParallelToolCalls: 4}\n"
        assert not (home / "settings.yaml").is_symlink()
        assert "3" in (home / "settings.yaml").read_text()


async def test_b06c_a_failed_write_leaves_no_draft_and_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.yaml").write_text(DOCUMENT)

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with file_settings(tmp_path) as (_root, settings, consumer):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", broken)
            with pytest.raises(DocumentError, match="cannot be written"):
                await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        assert [entry.name for entry in tmp_path.iterdir()] == ["settings.yaml"]
        assert (tmp_path / "settings.yaml").read_text() == DOCUMENT
        assert cap(consumer) == 4
        await settings.update("agent-loop", {"maxParallelToolCalls": 3})
        assert cap(consumer) == 3


async def test_b06d_comments_quotes_unknown_sections_and_unchanged_lists_survive(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(DOCUMENT)
    async with file_settings(tmp_path) as (_root, settings, _consumer):
        await settings.update("agent-loop", {"maxParallelToolCalls": 2})
        assert file.read_text() == DOCUMENT.replace("Calls: 4", "Calls: 2")
        await settings.update("route", {"model": "other", "headers": {"x": "no"}})
        expected = DOCUMENT.replace("Calls: 4", "Calls: 2").replace("'deepseek-flash'", "other")
        assert file.read_text() == expected + "  headers:\n    x: no\n"
        await settings.replace("route", {"stop": ["c"]})
        assert file.read_text() == expected.split("  # which model")[0] + "  stop:\n    - c\n"


async def test_b06e_windows_line_ends_and_a_missing_last_one_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_bytes(b"# c\r\nagent-loop:\r\n  maxParallelToolCalls: 4 # n\r\nroute:\r\n  model: m")
    async with file_settings(tmp_path) as (_root, settings, _consumer):
        await settings.update("route", {"provider": "p"})
        await settings.update("agent-loop", {"maxParallelToolCalls": 5})
        assert file.read_bytes() == (
            b"# c\r\nagent-loop:\r\n  maxParallelToolCalls: 5 # n\r\nroute:\r\n  model: m\r\n  provider: p"
        )


async def test_b06f_a_json_document_is_written_with_two_spaces(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text('{"other": {"a": 1}}')
    async with file_settings(tmp_path, path="mine.json") as (_root, settings, _consumer):
        await settings.update("agent-loop", {"maxParallelToolCalls": 5})
        assert file.read_text() == (
            '{\n  "other": {\n    "a": 1\n  },\n  "agent-loop": {\n    "maxParallelToolCalls": 5\n  }\n}\n'
        )


async def test_b06g_the_last_key_takes_its_section_and_the_comment_above_along(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("route: {model: m}\n# how many\nagent-loop:\n  maxParallelToolCalls: 4\n")
    async with file_settings(tmp_path) as (_root, settings, _consumer):
        await settings.mutate("agent-loop", [{"op": "unset", "path": ["maxParallelToolCalls"]}])
        assert file.read_text() == "route: {model: m}\n"


# --- 7: several writers -----------------------------------------------------------------------------------------------


async def test_b07a_two_providers_on_one_file_both_land(tmp_path: Path) -> None:
    async with (
        file_settings(tmp_path) as (_root1, first, one),
        file_settings(tmp_path) as (_root2, second, two),
    ):
        await asyncio.gather(
            *(first.update("route", {"headers": {f"a{n}": "1"}}) for n in range(5)),
            *(second.update("route", {"headers": {f"b{n}": "1"}}) for n in range(5)),
        )
        await until(lambda: len(one.scopes["route"].get().headers) == 10)
        await until(lambda: len(two.scopes["route"].get().headers) == 10)


async def test_b07b_a_busy_lock_is_waited_for_and_an_old_one_is_not_stolen(tmp_path: Path) -> None:
    lock = lock_path(tmp_path / "settings.yaml")
    async with file_settings(tmp_path) as (_root, settings, _consumer):
        lock.write_text(f"{os.getpid()}\n")
        write = asyncio.ensure_future(settings.update("agent-loop", {"maxParallelToolCalls": 3}))
        await anyio.sleep(0.1)
        assert not write.done()
        lock.unlink()
        await write
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        lock.write_text(f"{dead.pid}\n")
        settings._document._lock_limit = 0.05
        with pytest.raises(LockTimeoutError, match="timed out waiting for the writer lock .*no longer runs") as caught:
            await settings.update("agent-loop", {"maxParallelToolCalls": 4})
        assert "$DSH_HOME/settings.yaml.lock" in str(caught.value)
        assert lock.exists()


async def test_b07c_an_edit_nobody_has_seen_yet_is_folded_into_the_write(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("route: {model: a}\n")
    async with file_settings(tmp_path, watch=False) as (_root, settings, consumer):
        file.write_text("route: {model: b, headers: {x: y}}\nagent-loop: {maxParallelToolCalls: 4}\n")
        await settings.update("route", {"provider": "p"})
        assert file.read_text() == (
            "route: {model: b, headers: {x: y}, provider: p}\nagent-loop: {maxParallelToolCalls: 4}\n"
        )
        assert cap(consumer) == 4
        assert [event[0] + ":" + event[1] for event in consumer.events] == [
            "document:route", "updated:route", "document:agent-loop", "updated:agent-loop",
            "document:route", "updated:route",
        ]  # fmt: skip
        with pytest.raises(SettingsError, match="revision"):
            file.write_text("route: {model: c}\n")
            await settings.update("route", {"model": "d"}, expected_revision=settings.revision("route"))


# --- 8: following the file --------------------------------------------------------------------------------------------


async def test_b08a_own_writes_cause_no_second_event(tmp_path: Path) -> None:
    async with file_settings(tmp_path) as (_root, settings, consumer):
        for value in (3, 4, 5):
            await settings.update("agent-loop", {"maxParallelToolCalls": value})
        await anyio.sleep(0.2)
        assert consumer.events == [
            event
            for value in (1, 2, 3)
            for event in (("document", "agent-loop", str(value)), ("updated", "agent-loop", "update"))
        ]


async def test_b08b_saves_of_every_kind_are_followed(tmp_path: Path) -> None:
    home = tmp_path / "not" / "yet"
    file = home / "settings.yaml"
    async with file_settings(home) as (_root, _settings, consumer):
        home.mkdir(parents=True)
        file.write_text("agent-loop: {maxParallelToolCalls: 2}\n")
        await until(lambda: cap(consumer) == 2)
        save_by_rename(file, "agent-loop: {maxParallelToolCalls: 3}\n")
        await until(lambda: cap(consumer) == 3)
        save_by_rename(file, "agent-loop: {maxParallelToolCalls: 4}\n")
        await until(lambda: cap(consumer) == 4)
        file.unlink()
        await until(lambda: cap(consumer) == 10)
        file.write_text("agent-loop: {maxParallelToolCalls: 5}\n")
        await until(lambda: cap(consumer) == 5)


async def test_b08c_a_directory_in_its_place_keeps_the_last_good_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("agent-loop: {maxParallelToolCalls: 4}\n")
    async with file_settings(tmp_path) as (_root, _settings, consumer):
        other = tmp_path / "other"
        other.mkdir()
        file.rename(tmp_path / "away")
        other.rename(file)
        await until(lambda: "EISDIR" in caplog.text or cap(consumer) == 10)
        await until(lambda: "EISDIR" in caplog.text)
        file.rmdir()
        (tmp_path / "away").rename(file)
        await until(lambda: cap(consumer) == 4)


async def test_b08d_an_edit_between_the_first_read_and_the_watcher_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("agent-loop: {maxParallelToolCalls: 4}\n")

    class Late(FileSettings):
        async def load(self) -> Any:
            loaded = await super().load()
            save_by_rename(file, "agent-loop: {maxParallelToolCalls: 5}\n")
            return loaded

    async with settings_of(Late, {"dshHome": str(tmp_path), "debounceMs": 20}) as (root, _settings, consumer):
        consumer.register(root, "agent-loop")
        await root.settle()
        await until(lambda: cap(consumer) == 5)


async def test_b08e_disposal_in_the_middle_of_a_refresh_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    entered, gate = asyncio.Event(), asyncio.Event()
    async with Context() as root:
        provider = root.plugin(FileSettings, {"dshHome": str(tmp_path), "watch": False})
        await provider
        consumer = Consumer()
        consumer.listen(root)
        settings: Any = root[Settings]

        async def slow(call: Any, *_args: Any, **_options: Any) -> Any:
            entered.set()
            await gate.wait()
            return call()

        file.write_text("agent-loop: {maxParallelToolCalls: 4}\n")
        monkeypatch.setattr("anyio.to_thread.run_sync", slow)
        settings._touched(frozenset())
        await entered.wait()
        gone = asyncio.ensure_future(provider.dispose())
        await until(lambda: settings.chain.closing)
        gate.set()
        await gone
        assert consumer.events == []


async def test_b08f_a_write_by_another_process_is_in_force_within_0_3_seconds(tmp_path: Path) -> None:
    """`dsh settings set agent-loop.maxParallelToolCalls 2` while the daemon runs."""
    script = (
        "import sys; from pathlib import Path; from dsh.loader.home import resolve_home; "
        "from dsh.settings.offline import OfflineSettings; import time; "
        "OfflineSettings(resolve_home(sys.argv[1])).set('agent-loop.maxParallelToolCalls', 2); print(time.time())"
    )
    async with file_settings(tmp_path, debounceMs=100) as (_root, _settings, consumer):
        arrived: list[float] = []
        consumer.scopes["agent-loop"].watch(lambda _value, _prev: arrived.append(time.time()))
        done = await anyio.run_process([sys.executable, "-c", script, str(tmp_path)])
        await until(lambda: cap(consumer) == 2)
        assert arrived[0] - float(done.stdout) < 0.3


async def test_b08g_a_watcher_that_cannot_start_polls_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", broken)
    async with file_settings(tmp_path) as (_root, _settings, consumer):
        (tmp_path / "settings.yaml").write_text("agent-loop: {maxParallelToolCalls: 2}\n")
        await until(lambda: cap(consumer) == 2)
        assert "not available" in caplog.text


# --- without a daemon -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, 1.5, "x"])
def test_b02j_the_offline_writer_refuses_with_the_reason_and_changes_no_byte(tmp_path: Path, bad: Any) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(DOCUMENT)
    settings = OfflineSettings(resolve_home(tmp_path))
    with pytest.raises(SettingsError, match="agent-loop.maxParallelToolCalls: must be"):
        settings.set("agent-loop.maxParallelToolCalls", bad)
    assert file.read_text() == DOCUMENT
    assert [entry.name for entry in tmp_path.iterdir()] == ["settings.yaml"]


def test_b02k_the_offline_writer_edits_unsets_and_names_layers(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(DOCUMENT)
    settings = OfflineSettings(resolve_home(tmp_path))
    assert settings.set("agent-loop.maxParallelToolCalls", 2) == []
    assert file.read_text() == DOCUMENT.replace("Calls: 4", "Calls: 2")
    assert settings.get("agent-loop.maxParallelToolCalls") == 2
    found = {value.key: value for value in settings.values({"agent-loop": {}})}
    assert (found["agent-loop.maxParallelToolCalls"].value, found["agent-loop.maxParallelToolCalls"].layer) == (
        2,
        "user",
    )
    assert settings.unset("agent-loop.maxParallelToolCalls") == []
    assert settings.get("agent-loop.maxParallelToolCalls") is None
    found = {value.key: value for value in settings.values({"agent-loop": {"maxParallelToolCalls": 8}})}
    assert (found["agent-loop.maxParallelToolCalls"].value, found["agent-loop.maxParallelToolCalls"].layer) == (
        8,
        "row",
    )
    found = {value.key: value for value in settings.values()}
    assert found["agent-loop.maxParallelToolCalls"].layer == "default"
    assert "not a built-in one" in settings.set("mine.x", 1)[0]
    typed = settings.set("agent-loop.maxParallelToolCall", 1, known_only=False)
    assert 'did you mean "maxParallelToolCalls"' in typed[0]
    with pytest.raises(SettingsError, match=r"section\.key"):
        settings.set("agent-loop..x", 1)


def test_b02l_every_built_in_section_has_a_schema() -> None:
    from dsh.settings.offline import SECTIONS, schema_of

    for ns in SECTIONS:
        schema = schema_of(ns)
        assert schema is not None and schema.json_schema()["type"] == "object"
