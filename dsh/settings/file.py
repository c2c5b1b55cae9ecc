"""The settings document `$DSH_HOME/settings.yaml`: a mapping of sections that a person, `dsh settings` and the
running daemon all write (row `settings-file`).

An edit by anybody is in force within a moment; a document that cannot be read keeps the last good values running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from dsh.cordis import ConfigModel, Context, field
from dsh.cordis.jsonio import JsonObject, NotJsonError, json_equal, snapshot_json
from dsh.loader.environment import home_of
from dsh.loader.watch import Watch
from dsh.loader.yamlio import find_mark
from dsh.settings.base import Apply, LayeredSettings
from dsh.settings.document import Document, DocumentError, document_path

DEFAULT_FILE = "settings.yaml"


class FileSettingsConfig(ConfigModel):
    """The user's settings document."""

    path: str | None = field(None, description="The document (.yaml, .yml or .json); relative to the home folder")
    dsh_home: str | None = field(None, description="Home folder, instead of $DSH_HOME")
    watch_: bool = field(True, description="Follow edits by other programs")
    debounce_ms: int = field(100, min=1, unit="ms", description="How long the file must be quiet before it is read")


def sections_of(document: Document, text: str | None) -> dict[str, JsonObject]:
    """The sections of a settings text; a section without content is empty. Raises DocumentError."""
    return checked_sections(document, document.parse(text))


def checked_sections(document: Document, data: Any) -> dict[str, JsonObject]:
    """The sections of a parsed settings document. Raises DocumentError."""
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise DocumentError(f"{document.shown}: must be a mapping of sections", "DOCUMENT_SHAPE")
    sections: dict[str, JsonObject] = {}
    for ns, section in data.items():
        if section is not None and not isinstance(section, Mapping):
            raise DocumentError(f"{document.shown}: section {ns} must be a mapping", "DOCUMENT_SHAPE")
        try:
            sections[ns] = snapshot_json(section or {})  # type: ignore[assignment]
        except NotJsonError as error:
            raise DocumentError(
                f"{document.shown}: section {ns}: {error.path} is not JSON data", "DOCUMENT_SHAPE"
            ) from None
    return sections


def with_section(sections: Mapping[str, JsonObject], ns: str, section: JsonObject) -> dict[str, JsonObject]:
    """The document after section `ns` became `section`; an empty section leaves the document."""
    changed = dict(sections)
    if section:
        changed[ns] = section
    else:
        changed.pop(ns, None)
    return changed


class FileSettings(LayeredSettings):
    """Settings in one file of the home folder."""

    Config = FileSettingsConfig

    def __init__(self, ctx: Context, config: FileSettingsConfig) -> None:
        super().__init__(ctx, config)
        home = home_of(ctx, config.dsh_home)
        self.document_path = document_path(home, config.path, DEFAULT_FILE)
        self._document = Document(self.document_path, home)
        self._text: str | None = None
        self._stored: dict[str, JsonObject] = {}
        self._marked: Any = None
        self._complaint: str | None = None
        self._reload_queued = False
        self._watch: Watch | None = None
        if config.watch_:
            # Half the quiet time twice is the quiet time: a change waits for one step without a further change.
            self._watch = Watch(self._touched, say=self._say, debounce=config.debounce_ms / 2000)

    async def load(self) -> Mapping[str, JsonObject]:
        """Read the document and follow it from now on. Raises DocumentError."""
        if self._watch is not None:
            self._watch.add_file(self._document.path)
        text = await anyio.to_thread.run_sync(self._document.read)
        self._take(text)
        if self._watch is not None:
            self.ctx.spawn(self._watch.run, name="settings watch")
        return self._stored

    async def prepare_document(self) -> None:
        """Create the file empty and private if it is absent, for an editor to open."""
        await anyio.to_thread.run_sync(self._document.create_empty)

    async def stop(self) -> None:
        """Stop following the file, finish what is queued."""
        if self._watch is not None:
            self._watch.stop()
        await super().stop()

    def place(self, ns: str, keys: Sequence[str | int]) -> str:
        """The line of a key in the document as it was last read."""
        mark = find_mark(self._marked, [ns, *keys])
        return f"{self._document.shown}:{mark.line}: " if mark is not None else ""

    async def persist(self, ns: str, apply: Apply) -> JsonObject:
        """Change section `ns` in the file under its lock."""
        document = self._document
        async with document.lock_async():
            text = await anyio.to_thread.run_sync(document.read)
            if text != self._text:
                self._take(text)
                self.publish(self._stored)
            current = self._stored.get(ns, {})
            section = apply(current)
            if json_equal(section, current):
                return section
            intended = with_section(self._stored, ns, section)
            edited = await anyio.to_thread.run_sync(document.edited, text, intended)
            await anyio.to_thread.run_sync(document.write, edited)
            self._take(edited)
        return section

    def _take(self, text: str | None) -> None:
        """Take over a text as the current one. Raises DocumentError and changes nothing if it is unusable."""
        marked = self._document.parse(text)
        self._stored = checked_sections(self._document, marked)
        self._text, self._marked, self._complaint = text, marked, None

    # -- following the file ------------------------------------------------------------------------------------------

    def _say(self, message: str) -> None:
        self.ctx.logger.warning("%s: %s", self._document.shown, message)

    def _touched(self, _paths: frozenset[Path]) -> None:
        if not self.chain.closing and not self._reload_queued:
            self._reload_queued = True
            self.chain.run(self._reload)

    async def _reload(self) -> None:
        self._reload_queued = False
        try:
            text = await anyio.to_thread.run_sync(self._document.read)
            if self.chain.closing or (text == self._text and self._complaint is None):
                return
            self._take(text)
        except DocumentError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self.ctx.logger.warning("%s; the last good settings stay in force", error)
            return
        try:
            self.publish(self._stored)
        except Exception:
            self.ctx.logger.exception("a settings observer failed")
