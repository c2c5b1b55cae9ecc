"""Credentials from the environment and the owner-only file `$DSH_HOME/.credentials.yaml` (row `credentials-local`).

Strongest first: what this process inherited, the document, `.env` of the start directory, `$DSH_HOME/.env`. The
document is followed while dsh runs. Stored keys never enter the environment of this process or of a child.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from dsh.cordis import ConfigModel, Context, Emit, InvariantError, field
from dsh.loader.environment import EnvSource, home_of, launch_environment_of
from dsh.loader.home import Home
from dsh.loader.watch import Watch
from dsh.settings.chain import Chain
from dsh.settings.credential_store import RECORD_KEY, Store, kind_of, record_of, store_of, upgraded
from dsh.settings.document import Document, DocumentError, document_path
from dsh.settings.service import (
    REFERENCE,
    CredentialError,
    CredentialInfo,
    CredentialRecord,
    CredentialRecordUpdated,
    CredentialReferenceUpdated,
    Credentials,
    CredentialSource,
    Mutate,
    RecordInfo,
    RecordKind,
    ResolvedCredential,
    Secret,
)

DEFAULT_FILE = ".credentials.yaml"
LOCK_LIMIT = 30.0
"""Seconds to wait for the document's lock: its holder may be refreshing a token over the network."""

_FILE_SOURCES: tuple[EnvSource, ...] = ("project-env", "user-env")


class LocalCredentialsConfig(ConfigModel):
    """Where credentials are stored."""

    path: str | None = field(None, description="The document (.yaml, .yml or .json); relative to the home folder")
    dsh_home: str | None = field(None, description="Home folder, instead of $DSH_HOME")
    watch_: bool = field(True, description="Follow edits by other programs")
    debounce_ms: int = field(100, min=1, unit="ms", description="How long the file must be quiet before it is read")


class PrivateDocument(Document):
    """A document only its owner may be able to read."""

    def __init__(self, path: Path, home: Home) -> None:
        super().__init__(path, home, lock_limit=LOCK_LIMIT)

    def read(self) -> str | None:
        """The text, None when there is no file. Refuses a file that others could read, before reading it."""
        if os.name == "posix":
            try:
                mode = stat.S_IMODE(os.stat(self.path).st_mode)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise DocumentError(f"{self.shown}: cannot be read ({error.strerror})", "DOCUMENT_UNREADABLE") from None
            if mode & 0o077:
                raise DocumentError(
                    f"{self.shown}: others can reach it (mode {mode:04o}); run `chmod 600 {self.shown}`",
                    "DOCUMENT_EXPOSED",
                )
        return super().read()

    def upgrade(self) -> None:
        """Bring a document of the old layout up to date, under its lock. Nothing to do is the usual case."""
        if upgraded(self, self.read()) is None:
            return
        with self.lock():
            text = upgraded(self, self.read())  # another process may have been first
            if text is not None:
                self.write(text)


class LocalCredentials(Credentials):
    """Credentials on this machine."""

    Config = LocalCredentialsConfig

    def __init__(self, ctx: Context, config: LocalCredentialsConfig) -> None:
        home = home_of(ctx, config.dsh_home)
        self._environment = launch_environment_of(ctx)
        self._document = PrivateDocument(document_path(home, config.path, DEFAULT_FILE), home)
        self._store = Store()
        self._text: str | None = None
        self._complaint: str | None = None
        self._reload_queued = False
        self._chain = Chain(ctx, "credentials")
        self._watch: Watch | None = None
        if config.watch_:
            self._watch = Watch(self._touched, say=self._say, debounce=config.debounce_ms / 2000)

    async def start(self) -> None:
        """Read the document, bringing an old one up to date. Raises DocumentError."""
        if self._watch is not None:
            self._watch.add_file(self._document.path)
        await anyio.to_thread.run_sync(self._document.upgrade)
        text = await anyio.to_thread.run_sync(self._document.read)
        self._store, self._text = store_of(self._document, text), text
        if self._watch is not None:
            self.ctx.spawn(self._watch.run, name="credentials watch")

    async def stop(self) -> None:
        """Stop following the file, finish the write that has begun."""
        if self._watch is not None:
            self._watch.stop()
        await self._chain.drain()

    # -- references --------------------------------------------------------------------------------------------------

    async def resolve(self, ref: str) -> ResolvedCredential | None:
        """See `Credentials.resolve`."""
        return self._find(ref)

    def describe(self, ref: str) -> CredentialInfo:
        """See `Credentials.describe`."""
        found = self._find(ref)
        source = None if found is None else found.source
        return CredentialInfo(found is not None, source, writable=source != "env")

    def references(self) -> list[str]:
        """Names with a stored value."""
        return list(self._store.refs)

    async def set(self, ref: str, value: str | Secret) -> None:
        """See `Credentials.set`."""
        secret = value if isinstance(value, Secret) else Secret(value)
        if not isinstance(secret.reveal(), str) or not secret.reveal():
            raise CredentialError(f"credential {ref}: the value must be non-empty text", "CREDENTIALS_INVALID")
        self._check_writable(ref)
        await self._change(lambda store: replace(store, refs={**store.refs, ref: secret}))

    async def unset(self, ref: str) -> None:
        """See `Credentials.unset`."""
        self._check_writable(ref)

        def without(store: Store) -> Store:
            return replace(store, refs={name: value for name, value in store.refs.items() if name != ref})

        await self._change(without)

    def _find(self, ref: str) -> ResolvedCredential | None:
        _check_reference(ref)
        inherited = self._environment.get_from(ref, ("process",))
        if inherited is not None and inherited.value:
            return ResolvedCredential(Secret(inherited.value), "env")
        stored = self._store.refs.get(ref)
        if stored is not None:
            return ResolvedCredential(stored, "file")
        for source in _FILE_SOURCES:
            entry = self._environment.get_from(ref, (source,))
            if entry is not None and entry.value:
                name: CredentialSource = "project-env" if source == "project-env" else "user-env"
                return ResolvedCredential(Secret(entry.value), name)
        return None

    def _check_writable(self, ref: str) -> None:
        found = self._find(ref)
        if found is not None and found.source == "env":
            raise CredentialError(
                f"credential {ref} is read-only: it comes from the environment dsh was started with. Unset it in the "
                "shell to store another value",
                "CREDENTIALS_READ_ONLY",
            )

    # -- records -----------------------------------------------------------------------------------------------------

    async def read_record(self, key: str) -> CredentialRecord | None:
        """See `Credentials.read_record`."""
        _check_key(key)
        return self._store.records.get(key)

    def describe_record(self, key: str) -> RecordInfo:
        """See `Credentials.describe_record`."""
        _check_key(key)
        record = self._store.records.get(key)
        return RecordInfo(record is not None, kind_of(record), writable=True)

    def list_records(self) -> Sequence[tuple[str, RecordKind]]:
        """See `Credentials.list_records`."""
        return [(key, record.kind) for key, record in self._store.records.items()]

    async def modify_record(self, key: str, mutate: Mutate) -> CredentialRecord | None:
        """See `Credentials.modify_record`."""
        _check_key(key)

        async def change(store: Store) -> Store:
            answer = mutate(store.records.get(key))
            data = await answer if isinstance(answer, Awaitable) else answer
            if data is None:
                return store
            try:
                record = record_of(data)
            except CredentialError as error:
                raise CredentialError(f"credential record {key} {error}", "CREDENTIALS_INVALID") from None
            return replace(store, records={**store.records, key: record})

        await self._change(change)
        return self._store.records.get(key)

    async def delete_record(self, key: str) -> None:
        """See `Credentials.delete_record`."""
        _check_key(key)

        def without(store: Store) -> Store:
            return replace(store, records={name: item for name, item in store.records.items() if name != key})

        await self._change(without)

    # -- the document ------------------------------------------------------------------------------------------------

    async def _change(self, change: Callable[[Store], Store | Awaitable[Store]]) -> None:
        if self._chain.closing:
            raise CredentialError("the credentials service is disposed", "CREDENTIALS_DISPOSED")
        await self._chain.run(lambda: self._run_change(change))

    async def _run_change(self, change: Callable[[Store], Store | Awaitable[Store]]) -> None:
        if self._chain.closing:
            raise CredentialError("the credentials service was disposed before the write began", "CREDENTIALS_DISPOSED")
        document = self._document
        async with document.lock_async():
            text = await anyio.to_thread.run_sync(document.read)
            if text != self._text:
                self._take_over(store_of(document, text), text)
            answer = change(self._store)
            store = await answer if isinstance(answer, Awaitable) else answer
            if store == self._store:
                return
            edited = await anyio.to_thread.run_sync(self._edit, text, store)
            await anyio.to_thread.run_sync(document.write, edited)
            self._take_over(store, edited)

    def _edit(self, text: str | None, store: Store) -> str:
        try:
            edited = self._document.edited(text, store.to_data())
            edited.encode("utf-8")
            same = store_of(self._document, edited) == store
        except (DocumentError, ValueError):
            same = False
        if not same:
            raise CredentialError("the value cannot be stored: it would not read back as given", "CREDENTIALS_INVALID")
        return edited

    def _take_over(self, store: Store, text: str | None) -> None:
        """Put a new store in force, then tell who watches what changed in it."""
        before, self._store, self._text, self._complaint = self._store, store, text, None
        events: list[Emit] = [
            CredentialReferenceUpdated(ref=ref)
            for ref in dict.fromkeys([*before.refs, *store.refs])
            if before.refs.get(ref) != store.refs.get(ref)
        ]
        events += [
            CredentialRecordUpdated(key=key)
            for key in dict.fromkeys([*before.records, *store.records])
            if before.records.get(key) != store.records.get(key)
        ]
        failure: InvariantError | None = None
        for event in events:
            try:
                self.ctx.emit(event)
            except InvariantError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # -- following the file ------------------------------------------------------------------------------------------

    def _say(self, message: str) -> None:
        self.ctx.logger.warning("%s: %s", self._document.shown, message)

    def _touched(self, _paths: frozenset[Path]) -> None:
        if not self._chain.closing and not self._reload_queued:
            self._reload_queued = True
            self._chain.run(self._reload)

    async def _reload(self) -> None:
        self._reload_queued = False
        try:
            text = await anyio.to_thread.run_sync(self._document.read)
            if self._chain.closing or (text == self._text and self._complaint is None):
                return
            store = store_of(self._document, text)
        except DocumentError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self.ctx.logger.warning("%s; the last good credentials stay in force", error)
            return
        try:
            self._take_over(store, text)
        except InvariantError:
            self.ctx.logger.exception("a credentials observer failed")


def _check_reference(ref: str) -> None:
    if not isinstance(ref, str) or not REFERENCE.fullmatch(ref):
        # The text is not shown: somebody may have put the key itself where its name belongs.
        raise CredentialError(
            "a credential reference must match [A-Za-z_][A-Za-z0-9_]*; a config holds the name of a key, not the key",
            "CREDENTIALS_REFERENCE",
        )


def _check_key(key: str) -> None:
    if not isinstance(key, str) or not RECORD_KEY.fullmatch(key):
        raise CredentialError("a credential record key must look like plugin/id", "CREDENTIALS_REFERENCE")
