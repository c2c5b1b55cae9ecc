"""Credentials: where a value comes from, what the document may hold, who may read it, who hears of a change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh.cordis import Context
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.fileio import lock_path
from dsh.settings.credentials import LocalCredentials
from dsh.settings.document import DocumentError
from dsh.settings.service import (
    CredentialError,
    CredentialRecordUpdated,
    CredentialReferenceUpdated,
    Credentials,
    Secret,
)
from tests.settings.helpers import until

MARKER = "sk-MARKER-value"


@asynccontextmanager
async def credentials_of(
    home: Path,
    *,
    process: Mapping[str, str] | None = None,
    project: Mapping[str, str] | None = None,
    user: Mapping[str, str] | None = None,
    **config: Any,
) -> AsyncIterator[tuple[Context, Any, list[str]]]:
    async with Context() as root:
        layers = [
            EnvLayer("process", process or {}),
            EnvLayer("project-env", project or {}, "/x/.env"),
            EnvLayer("user-env", user or {}, "/y/.env"),
        ]
        root.provide("launchEnvironment", LaunchEnvironment(layers))
        events: list[str] = []
        root.on(CredentialReferenceUpdated, lambda e: events.append(e.ref))
        root.on(CredentialRecordUpdated, lambda e: events.append(e.key))
        await root.plugin(LocalCredentials, {"dshHome": str(home), "debounceMs": 20, **config})
        yield root, root[Credentials], events


def store(home: Path, text: str) -> Path:
    file = home / ".credentials.yaml"
    draft = home / "draft"
    draft.write_bytes(text.encode())
    draft.chmod(0o600)
    os.replace(draft, file)
    return file


async def value_of(credentials: Credentials, ref: str) -> tuple[str, str] | None:
    found = await credentials.resolve(ref)
    return None if found is None else (found.value.reveal(), found.source)


# --- 9: the ladder ----------------------------------------------------------------------------------------------------


async def test_b09a_the_strongest_source_wins_and_empty_values_fall_through(tmp_path: Path) -> None:
    store(tmp_path, "version: 1\nrefs: {A: file, B: file, C: file}\n")
    async with credentials_of(
        tmp_path,
        process={"A": "env", "B": "", "E": ""},
        project={"A": "p", "B": "p", "C": "p", "D": "p", "E": ""},
        user={"A": "u", "D": "u", "E": "u", "F": ""},
    ) as (_root, credentials, _events):
        found = {ref: await value_of(credentials, ref) for ref in "ABCDEFG"}
        assert found == {
            "A": ("env", "env"),
            "B": ("file", "file"),
            "C": ("file", "file"),
            "D": ("p", "project-env"),
            "E": ("u", "user-env"),
            "F": None,
            "G": None,
        }
        assert [credentials.describe(ref).writable for ref in "ABDEG"] == [False, True, True, True, True]
        assert credentials.describe("G").configured is False


async def test_b09b_only_the_inherited_environment_refuses_a_write(tmp_path: Path) -> None:
    async with credentials_of(tmp_path, process={"A": MARKER}, user={"D": "u"}) as (_root, credentials, events):
        for write in (credentials.set("A", "x"), credentials.unset("A")):
            with pytest.raises(CredentialError, match="A is read-only") as caught:
                await write
            assert MARKER not in str(caught.value)
        await credentials.set("D", "stored")
        assert await value_of(credentials, "D") == ("stored", "file")
        await credentials.unset("D")
        assert await value_of(credentials, "D") == ("u", "user-env")
        await credentials.unset("D")
        await credentials.unset("NEVER_THERE")
        assert events == ["D", "D"]


async def test_b09c_a_value_where_a_reference_belongs_is_refused_unseen(tmp_path: Path) -> None:
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        with pytest.raises(CredentialError) as caught:
            await credentials.resolve(MARKER)
        assert MARKER not in str(caught.value)
        for bad in ("", Secret("")):
            with pytest.raises(CredentialError, match="non-empty"):
                await credentials.set("A", bad)


async def test_b09d_a_stored_key_never_enters_the_environment(tmp_path: Path) -> None:
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        await credentials.set("DSH_TEST_KEY", MARKER)
        assert MARKER not in os.environ.values()


# --- 10: private ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o660])
async def test_b10a_a_file_others_can_reach_is_refused_before_it_is_read(tmp_path: Path, mode: int) -> None:
    file = store(tmp_path, f"version: 2\nrefs: {{A: {MARKER}}}\n")
    file.chmod(mode)
    async with Context() as root:
        with pytest.raises(DocumentError, match=r"chmod 600 \$DSH_HOME/\.credentials\.yaml"):
            await root.plugin(LocalCredentials, {"dshHome": str(tmp_path)})


async def test_b10b_a_file_opened_up_while_running_keeps_the_last_good_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = store(tmp_path, "version: 1\nrefs: {A: one}\n")
    async with credentials_of(tmp_path) as (_root, credentials, events):
        draft = tmp_path / "draft"
        draft.write_text(f"version: 1\nrefs: {{A: {MARKER}}}\n")
        draft.chmod(0o644)
        os.replace(draft, file)
        await until(lambda: "chmod 600" in caplog.text)
        assert await value_of(credentials, "A") == ("one", "file")
        with pytest.raises(DocumentError, match="chmod 600"):
            await credentials.set("B", "x")
        assert MARKER not in caplog.text
        file.chmod(0o600)
        await until(lambda: events == ["A"])
        assert await value_of(credentials, "A") == (MARKER, "file")


async def test_b10c_created_private_below_a_private_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with credentials_of(home) as (_root, credentials, _events):
        await credentials.set("A", "x")
        assert oct((home / ".credentials.yaml").stat().st_mode)[-3:] == "600"
        assert oct(home.stat().st_mode)[-3:] == "700"
        assert (home / ".credentials.yaml").read_text() == "version: 1\nrefs:\n  A: x\n"


async def test_b10d_no_value_shows_in_logs_events_errors_or_reprs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    texts: list[str] = []
    async with credentials_of(tmp_path, process={"E": MARKER}) as (root, credentials, events):
        await credentials.set("A", MARKER)
        await credentials.modify_record("plugin/one", lambda _old: {"kind": "api-key", "key": MARKER})
        for broken in (
            f"version: 1\nrefs: {{A: [{MARKER}]}}\n",
            f"version: 1\nrefs: {{A: {MARKER}\n",
            f"version: 1\nrefs: {{'{MARKER}': x}}\n",
            f"version: 1\n{MARKER}: 1\n",
            f"version: 1\nrefs: {{A: !{MARKER} x}}\n",
            f"version: 1\nrefs: {{{MARKER}: 1, {MARKER}: 1}}\n",
            f"version: 1\nrefs: {{A: *{MARKER}}}\n",
            f"version: 1\nrecords: {{a/b: {{kind: {MARKER}}}}}\n",
            f"version: 1\nrecords: {{a/b: {{kind: grant, {MARKER}: 1, payload: {{}}}}}}\n",
            f"version: {MARKER}\n",
            f"{MARKER}\n",
        ):
            seen = caplog.text.count("last good")
            store(tmp_path, broken)
            credentials._touched(frozenset())
            await until(lambda seen=seen: caplog.text.count("last good") > seen)
            try:
                await credentials.set("B", MARKER)
            except DocumentError as error:
                texts.append("".join(traceback.format_exception(error)))
        found = await credentials.resolve("E")
        record = await credentials.read_record("plugin/one")
        texts += [repr(found), str(found), f"{found.value}", repr(record), repr(credentials._store), *events]
        texts += [repr(credentials.describe("A")), repr(root.inspect()), repr(credentials.list_records())]
    assert len(texts) > 11
    assert MARKER not in caplog.text + "".join(texts)


# --- 11: the document -------------------------------------------------------------------------------------------------

BAD_DOCUMENTS = {
    "version is missing": "refs: {A: x}\n",
    "version must be 1": "version: 2\n",
    "version must be 1;": "version: true\n",
    "unknown key at the top": "version: 1\nref: {A: x}\n",
    "must be a mapping with version": "- a\n",
    "refs must be a mapping": "version: 1\nrefs: [a]\n",
    "refs.A: must be non-empty text": "version: 1\nrefs: {A: ''}\n",
    "refs.A: must be non-empty text (num": "version: 1\nrefs: {A: 12}\n",
    "the name of entry 2": "version: 1\nrefs: {A: x, 'B-C': y}\n",
    "a key stands twice": "version: 1\nrefs: {A: x, A: y}\n",
    "records must be a mapping": "version: 1\nrecords: []\n",
    "records: the key of entry 1": "version: 1\nrecords: {ab: {kind: api-key}}\n",
    "records.a/b: must be a mapping": "version: 1\nrecords: {a/b: x}\n",
    "records.a/b: kind must be": "version: 1\nrecords: {a/b: {kind: other}}\n",
    "records.a/b: has an unknown field": "version: 1\nrecords: {a/b: {kind: api-key, payload: {}}}\n",
    "records.a/b: key must be": "version: 1\nrecords: {a/b: {kind: api-key, key: 1}}\n",
    "records.a/b: env must be a mapping": "version: 1\nrecords: {a/b: {kind: api-key, env: x}}\n",
    "records.a/b: env must map": "version: 1\nrecords: {a/b: {kind: api-key, env: {A: ''}}}\n",
    "records.a/b: payload must be": "version: 1\nrecords: {a/b: {kind: grant}}\n",
    "old layout": "A: x\nB: 1\n",
}


@pytest.mark.parametrize("said", BAD_DOCUMENTS)
async def test_b11a_each_violation_stops_the_start(tmp_path: Path, said: str) -> None:
    import re

    store(tmp_path, BAD_DOCUMENTS[said])
    async with Context() as root:
        with pytest.raises(DocumentError, match=re.escape(said)):
            await root.plugin(LocalCredentials, {"dshHome": str(tmp_path)})


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "version: 1\n", "version: 1\nrefs:\nrecords:\n"])
async def test_b11b_a_document_without_entries_is_an_empty_store(tmp_path: Path, text: str) -> None:
    file = store(tmp_path, text)
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        assert credentials.list_records() == []
        await credentials.set("A", "x")
        assert file.read_text().startswith("# nothing yet\n" if "#" in text else "version: 1\n")
        assert await value_of(credentials, "A") == ("x", "file")


OLD = "# keys\nDEEPSEEK_API_KEY: sk-1   # mine\n\nOTHER: |-\n  line one\n\n  line two\nTHIRD: 'a''b'\n"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
async def test_b11c_the_old_layout_is_upgraded_line_by_line_and_once(tmp_path: Path, newline: str, last: bool) -> None:
    old = (OLD if last else OLD.rstrip("\n")).replace("\n", newline)
    file = store(tmp_path, old)
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        body = "".join(f"  {line}" if line.strip() else line for line in old.splitlines(keepends=True))
        upgraded = f"version: 1{newline}refs:{newline}{body}".encode()
        assert file.read_bytes() == upgraded
        assert await value_of(credentials, "OTHER") == ("line one\n\nline two", "file")
        assert await value_of(credentials, "THIRD") == ("a'b", "file")
        assert oct(file.stat().st_mode)[-3:] == "600"
    async with credentials_of(tmp_path):
        assert file.read_bytes() == upgraded


async def test_b11d_several_starts_at_once_upgrade_once(tmp_path: Path) -> None:
    file = store(tmp_path, OLD)

    async def start() -> None:
        async with credentials_of(tmp_path) as (_root, credentials, _events):
            assert await value_of(credentials, "DEEPSEEK_API_KEY") == ("sk-1", "file")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(start)
    assert file.read_text().count("version") == 1
    assert not lock_path(file).exists()


DOCUMENT = """\
version: 1
# all my keys
refs:
  FIRST: "one"   # quoted
  # the long one
  PEM: |
    -----BEGIN-----
    SECOND: not an entry
    -----END-----
  LAST: three
records:
  # from the login
  llm-pi-ai/acme: {kind: grant, payload: {token: t, n: [1, 2.5, null, true]}}
  mcp-client/docs:
    kind: api-key
    key: k
    env: {ACME_ORG: org}
"""


async def test_b11e_entry_edits_leave_their_neighbours_alone(tmp_path: Path) -> None:
    file = store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, events):
        await credentials.set("LAST", "four")
        assert file.read_text() == DOCUMENT.replace("LAST: three", "LAST: four")
        await credentials.unset("PEM")
        without = DOCUMENT.replace("LAST: three", "LAST: four")
        start, end = without.index("  # the long one"), without.index("  LAST:")
        without = without[:start] + without[end:]
        assert file.read_text() == without
        await credentials.delete_record("llm-pi-ai/acme")
        start, end = without.index("  # from the login"), without.index("  mcp-client")
        assert file.read_text() == without[:start] + without[end:]
        assert events == ["LAST", "PEM", "llm-pi-ai/acme"]


@pytest.mark.parametrize(
    "value",
    [
        "a\nb",
        "a\nb\n",
        "'\"",
        "# x",
        "x # y",
        "SECOND: x",
        " lead",
        "- a",
        "no",
        "12",
        "*x",
        "é\u2028",
        "\t",
        "{",
        "\x07",
    ],
)
async def test_b11f_any_text_round_trips(tmp_path: Path, value: str) -> None:
    store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        await credentials.set("NEW", value)
        await credentials.modify_record("a/b", lambda _old: {"kind": "grant", "payload": {"deep": [{"x": value}]}})
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        assert await value_of(credentials, "NEW") == (value, "file")
        assert await value_of(credentials, "LAST") == ("three", "file")
        record = await credentials.read_record("a/b")
        assert record is not None
        assert record.reveal() == {"kind": "grant", "payload": {"deep": [{"x": value}]}}


async def test_b11g_what_would_not_read_back_is_refused(tmp_path: Path) -> None:
    file = store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        with pytest.raises(CredentialError, match="would not read back"):
            await credentials.set("A", "\ud800")
        for bad in ({"kind": "grant", "payload": {"x": b"1"}}, {"kind": "grant"}, {"kind": "api-key", "key": ""}):
            with pytest.raises(CredentialError, match="credential record a/b"):
                await credentials.modify_record("a/b", lambda _old, bad=bad: bad)
        assert file.read_text() == DOCUMENT


async def test_b11h_a_bare_api_key_record_counts_as_configured(tmp_path: Path) -> None:
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        await credentials.modify_record("a/b", lambda _old: {"kind": "api-key"})
        info = credentials.describe_record("a/b")
        assert (info.configured, info.kind, info.writable) == (True, "api-key", True)
        assert credentials.describe_record("a/c").configured is False
        assert credentials.list_records() == [("a/b", "api-key")]
        with pytest.raises(CredentialError, match="plugin/id"):
            credentials.describe_record("bare")


async def test_b11i_edits_by_others_are_followed_and_named_entry_by_entry(tmp_path: Path) -> None:
    store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, events):
        store(tmp_path, DOCUMENT.replace("three", "four").replace("key: k\n", "key: kk\n"))
        await until(lambda: events == ["LAST", "mcp-client/docs"])
        events.clear()
        (tmp_path / ".credentials.yaml").unlink()
        await until(lambda: len(events) == 5)
        assert await value_of(credentials, "FIRST") is None


async def test_b11j_a_json_document_works_as_well(tmp_path: Path) -> None:
    async with credentials_of(tmp_path, path="keys.json") as (_root, credentials, _events):
        await credentials.set("A", "x")
        assert (tmp_path / "keys.json").read_text() == '{\n  "version": 1,\n  "refs": {\n    "A": "x"\n  }\n}\n'


# --- 12: records ------------------------------------------------------------------------------------------------------

COUNT = """
import asyncio, sys
from pathlib import Path
from dsh.cordis import Context
from dsh.settings.credentials import LocalCredentials
from dsh.settings.service import Credentials

async def main():
    async with Context() as root:
        await root.plugin(LocalCredentials, {"dshHome": sys.argv[1], "watch": False})
        async def add(record):
            await asyncio.sleep(0.001)
            n = record.reveal()["payload"]["n"] if record else 0
            return {"kind": "grant", "payload": {"n": n + 1}}
        for _ in range(15):
            await root[Credentials].modify_record("a/count", add)

asyncio.run(main())
"""


async def test_b12a_two_processes_lose_no_change(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", COUNT, str(tmp_path)]) for _ in range(2)]
    for worker in workers:
        assert await anyio.to_thread.run_sync(worker.wait) == 0
    async with credentials_of(tmp_path) as (_root, credentials, _events):
        record = await credentials.read_record("a/count")
        assert record.reveal()["payload"] == {"n": 30}


async def test_b12b_nothing_returned_is_nothing_changed(tmp_path: Path) -> None:
    file = store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, events):
        seen: list[Any] = []
        before = file.stat().st_mtime_ns
        kept = await credentials.modify_record("mcp-client/docs", lambda old: seen.append(old))
        assert kept is seen[0] and kept.reveal()["key"] == "k"
        assert await credentials.modify_record("no/one", lambda _old: None) is None
        await credentials.delete_record("no/one")
        assert events == []
        assert file.stat().st_mtime_ns == before


async def test_b12c_after_disposal_what_had_begun_lands_and_what_waited_fails(tmp_path: Path) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    async with Context() as root:
        row = root.plugin(LocalCredentials, {"dshHome": str(tmp_path), "watch": False})
        await row
        credentials: Any = root[Credentials]

        async def slow(_old: Any) -> dict[str, Any]:
            entered.set()
            await gate.wait()
            return {"kind": "api-key", "key": "k"}

        first = asyncio.ensure_future(credentials.modify_record("a/b", slow))
        await entered.wait()
        second = asyncio.ensure_future(credentials.set("A", "x"))
        await asyncio.sleep(0)
        chain = credentials._chain
        gone = asyncio.ensure_future(row.dispose())
        await until(lambda: chain.closing)
        gate.set()
        await gone
        await first
        with pytest.raises(CredentialError, match="disposed"):
            await second
    assert (tmp_path / ".credentials.yaml").read_text() == (
        "version: 1\nrefs: {}\nrecords:\n  a/b:\n    kind: api-key\n    key: k\n"
    )


async def test_b12d_a_failing_change_leaves_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    file = store(tmp_path, DOCUMENT)
    async with credentials_of(tmp_path) as (_root, credentials, _events):

        async def broken(_old: Any) -> None:
            raise RuntimeError("refresh failed")

        with pytest.raises(RuntimeError, match="refresh failed"):
            await credentials.modify_record("a/b", broken)
        assert file.read_text() == DOCUMENT
        assert not lock_path(file).exists()
        await credentials.set("A", "x")
