"""The credentials document: what it may hold, how its text becomes data, and how an old one is brought up to date.

Nothing here ever puts a value, or text that may be one, into a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dsh.cordis.jsonio import JsonObject, NotJsonError, snapshot_json
from dsh.cordis.records import record
from dsh.settings.document import Document, DocumentError
from dsh.settings.service import REFERENCE, CredentialError, CredentialRecord, RecordKind, Secret

VERSION = 1
RECORD_KEY = re.compile(r"[a-z][a-z0-9-]*/[a-z][a-z0-9-]*")
"""`<plugin>/<id>`."""


@record
class Store:
    """One reading of the document; replaced whole, never changed."""

    refs: Mapping[str, Secret] = field(default_factory=dict)
    records: Mapping[str, CredentialRecord] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """The document as plain data, values revealed: for writing it, nothing else."""
        data: dict[str, Any] = {"version": VERSION, "refs": {name: value.reveal() for name, value in self.refs.items()}}
        if self.records:
            data["records"] = {key: record.reveal() for key, record in self.records.items()}
        return data


def store_of(document: Document, text: str | None) -> Store:
    """The content of a document text; nothing is an empty store. Raises DocumentError for anything odd."""
    data = document.parse(text)
    if data is None:
        return Store()
    problem = _Problem(document)
    if not isinstance(data, Mapping):
        raise problem("must be a mapping with version, refs and records")
    if "version" not in data:
        if _looks_flat(data):
            raise problem(
                "has the old layout but cannot be upgraded as it stands; put `version: 1` and `refs:` on top and "
                "indent the entries by two spaces"
            )
        raise problem("version is missing; this dsh reads version 1")
    if data["version"] is True or data["version"] != VERSION:
        raise problem("version must be 1; this dsh reads no other")
    if data.keys() - {"version", "refs", "records"}:
        raise problem("has an unknown key at the top; known are version, refs and records")
    return Store(_refs(data.get("refs"), problem), _records(data.get("records"), problem))


class _Problem:
    def __init__(self, document: Document) -> None:
        self._shown = document.shown

    def __call__(self, text: str) -> DocumentError:
        return DocumentError(f"{self._shown}: {text}", "DOCUMENT_SHAPE")


def _refs(data: Any, problem: _Problem) -> dict[str, Secret]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise problem("refs must be a mapping of names to values")
    refs = {}
    for number, (name, value) in enumerate(data.items(), 1):
        if not REFERENCE.fullmatch(name):
            raise problem(f"refs: the name of entry {number} must match [A-Za-z_][A-Za-z0-9_]*")
        if not isinstance(value, str) or not value:
            raise problem(f"refs.{name}: must be non-empty text (numbers need quotes)")
        refs[name] = Secret(value)
    return refs


def _records(data: Any, problem: _Problem) -> dict[str, CredentialRecord]:
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise problem("records must be a mapping")
    records = {}
    for number, (key, found) in enumerate(data.items(), 1):
        if not RECORD_KEY.fullmatch(key):
            raise problem(f"records: the key of entry {number} must look like plugin/id")
        try:
            records[key] = record_of(found)
        except CredentialError as error:
            raise problem(f"records.{key}: {error}") from None
    return records


def record_of(data: object) -> CredentialRecord:
    """A checked record. Raises CredentialError saying what is wrong, without content."""
    try:
        record = snapshot_json(data)
    except NotJsonError:
        raise CredentialError("is not JSON data", "CREDENTIALS_INVALID") from None
    if not isinstance(record, dict):
        raise CredentialError("must be a mapping", "CREDENTIALS_INVALID")
    kind = record.get("kind")
    if kind == "api-key":
        allowed = {"kind", "key", "env"}
        _check_api_key(record)
    elif kind == "grant":
        allowed = {"kind", "payload"}
        if not isinstance(record.get("payload"), dict):
            raise CredentialError("payload must be a mapping", "CREDENTIALS_INVALID")
    else:
        raise CredentialError("kind must be api-key or grant", "CREDENTIALS_INVALID")
    if record.keys() - allowed:
        raise CredentialError(
            f"has an unknown field; a record of kind {kind} has {', '.join(sorted(allowed))}", "CREDENTIALS_INVALID"
        )
    return CredentialRecord(kind, record)


def _check_api_key(record: JsonObject) -> None:
    key, env = record.get("key"), record.get("env")
    if "key" in record and (not isinstance(key, str) or not key):
        raise CredentialError("key must be non-empty text", "CREDENTIALS_INVALID")
    if "env" not in record:
        return
    if not isinstance(env, dict):
        raise CredentialError("env must be a mapping", "CREDENTIALS_INVALID")
    for name, value in env.items():
        if not REFERENCE.fullmatch(name) or not isinstance(value, str) or not value:
            raise CredentialError("env must map names to non-empty text", "CREDENTIALS_INVALID")


# --- the old layout -------------------------------------------------------------------------------------------------


def _looks_flat(data: Mapping[str, Any]) -> bool:
    """Whether this is the layout of old: names straight at the top."""
    return bool(data) and not data.keys() & {"refs", "records"} and all(REFERENCE.fullmatch(name) for name in data)


def upgraded(document: Document, text: str | None) -> str | None:
    """The text in today's layout if it is exactly the old one (`NAME: value` at the top), else None.

    The lines stay byte for byte, two spaces deeper under `refs:`. Raises DocumentError for text that does not parse.
    """
    data = document.parse(text)
    if text is None or not isinstance(data, Mapping) or "version" in data or not _looks_flat(data):
        return None
    if not all(isinstance(value, str) and value for value in data.values()):
        return None
    if document.path.suffix == ".json":
        return document.edited(text, {"version": VERSION, "refs": dict(data)})
    newline = "\r\n" if "\r\n" in text else "\n"
    body = text.removeprefix("\ufeff")
    lines = [f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True)]
    candidate = f"version: {VERSION}{newline}refs:{newline}{''.join(lines)}"
    try:
        read_back = document.parse(candidate)
    except DocumentError:
        return None
    return candidate if read_back == {"version": VERSION, "refs": dict(data)} else None


def kind_of(record: CredentialRecord | None) -> RecordKind | None:
    """The kind of a record that may be missing."""
    return None if record is None else record.kind
