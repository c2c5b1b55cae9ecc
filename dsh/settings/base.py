"""The semantics every settings provider shares: layers, writes, revisions, observation.

A provider says where the document is kept: it implements `load` and `persist`, and calls `publish` when somebody
else changed it. All loads, writes and foreign changes go through one chain, one at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from dsh.cordis import ConfigError, ConfigModel, Context, Emit, InvariantError, owned
from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import JsonObject, json_equal, snapshot_json, thaw
from dsh.cordis.records import identity_struct
from dsh.core.seams import Settings, SettingsScope
from dsh.settings.chain import Chain
from dsh.settings.sections import (
    NAMESPACE,
    Redactor,
    SettingsConflictError,
    SettingsError,
    check_data,
    check_operations,
    layered,
    operated,
    patched,
    refuse_unknown,
)

M = TypeVar("M", bound=ConfigModel)
Applies = Literal["live", "restart"]
Apply = Callable[[JsonObject], JsonObject]
"""Takes the stored section (empty if there is none), returns the new one; raises to refuse the write."""


class SettingsUpdated(Emit, name="settings/updated"):
    """The resolved value of a section changed, by a write (`update`) or by a foreign edit (`provider`)."""

    ns: str
    next: ConfigModel
    prev: ConfigModel
    source: Literal["update", "provider"]


class SettingsDocumentUpdated(Emit, name="settings/document-updated"):
    """The stored section changed, whether or not that changes its resolved value."""

    ns: str
    revision: int


@identity_struct
class _Watcher:
    callback: Callable[[Any, Any], Any]
    stopped: bool = False
    busy: bool = False
    queue: deque[tuple[Any, Any]] = field(default_factory=deque)


@identity_struct
class _Registration:
    ns: str
    schema: type[ConfigModel]
    base: JsonObject
    applies: Applies
    validate: Callable[[Any], None] | None
    value: ConfigModel
    warned: frozenset[str] = frozenset()
    watchers: list[_Watcher] = field(default_factory=list)


class _Scope(Generic[M]):
    """One consumer's view of its own section."""

    def __init__(self, settings: LayeredSettings, registration: _Registration) -> None:
        self._settings = settings
        self._registration = registration

    def get(self) -> M:
        return self._registration.value  # type: ignore[return-value]

    def watch(self, callback: Callable[[M, M], Any]) -> Callable[[], None]:
        watcher = _Watcher(callback)
        self._registration.watchers.append(watcher)

        def stop() -> None:
            if not watcher.stopped:
                watcher.stopped = True
                watcher.queue.clear()
                self._registration.watchers.remove(watcher)

        return stop

    async def update(self, patch: Mapping[str, Any]) -> None:
        await self._settings._write_patch(self._registration, patch, None)

    async def replace(self, section: Mapping[str, Any]) -> None:
        await self._settings._write_section(self._registration, section, None)

    def rebase(self, base: Mapping[str, Any]) -> None:
        """Lay the user's section over `base` from now on (the row's config changed in place)."""
        self._settings._rebase(self._registration, base)


class LayeredSettings(Settings):
    """Settings over a document that a subclass keeps."""

    writable: bool = True
    document_path: Path | None = None

    def __init__(self, ctx: Context, config: Any = None) -> None:
        self._registrations: dict[str, _Registration] = {}
        self._sections: dict[str, JsonObject] = {}
        self._revisions: dict[str, int] = {}
        self.chain = Chain(ctx, "settings")

    # -- what a provider supplies ------------------------------------------------------------------------------------

    @abstractmethod
    async def load(self) -> Mapping[str, JsonObject]:
        """Read the whole document when the row starts. Raises to make the row fail."""

    @abstractmethod
    async def persist(self, ns: str, apply: Apply) -> JsonObject:
        """Store `apply(current section)` and return it.

        Runs in the chain. Changes found in storage are published first; `apply` is called once and may raise.
        """

    async def prepare_document(self) -> None:
        """Make sure the document can be opened by an editor. Nothing where there is none."""

    def place(self, ns: str, keys: Sequence[str | int]) -> str:
        """Where a key of a stored section stands, as the start of a message (`settings.yaml:3: `); may be empty."""
        return ""

    # -- lifecycle ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the document."""
        document = await self.load()
        self._sections = {ns: snapshot_json(section) for ns, section in document.items() if section}  # type: ignore[misc]

    async def stop(self) -> None:
        """Refuse new writes, finish the queued ones and the watchers they started."""
        await self.chain.drain()

    # -- registration ------------------------------------------------------------------------------------------------

    @owned
    def register(  # type: ignore[override]
        self,
        caller: Context,
        ns: str,
        schema: type[M],
        base: Mapping[str, Any] | None = None,
        *,
        applies: Applies = "live",
        validate: Callable[[M], None] | None = None,
    ) -> SettingsScope[M]:
        """Declare section `ns`; the registration leaves with the calling fiber.

        `validate(value)` raises for what the schema cannot say. Raises SettingsError when the name is malformed or
        taken, or when what is stored fails the schema or `validate`.
        """
        if not NAMESPACE.fullmatch(ns):
            raise SettingsError(f'settings section "{ns}": the name must match [a-z][a-z0-9-]*', "SETTINGS_INVALID")
        if ns in self._registrations:
            raise SettingsError(f'settings section "{ns}" is already registered', "SETTINGS_DUPLICATE")
        frozen = check_data(ns, base or {}, "the base")
        section = self._sections.get(ns, {})
        registration = _Registration(ns, schema, frozen, applies, validate, value=None)  # type: ignore[arg-type]
        try:
            registration.value = self._resolve(registration, section)
        except SettingsError as error:
            raise SettingsError(f"{self._place_of(ns, error)}{error}", error.code) from error.__cause__
        self._warn_unknown(registration)

        def enter() -> Callable[[], None]:
            self._registrations[ns] = registration

            def leave() -> None:
                if self._registrations.get(ns) is registration:
                    del self._registrations[ns]
                for watcher in registration.watchers:
                    watcher.stopped = True
                    watcher.queue.clear()
                registration.watchers.clear()

            return leave

        caller.effect(enter, f"settings({ns})")
        return _Scope(self, registration)

    def get(self, ns: str) -> ConfigModel | None:
        """The resolved value of `ns`, None when nobody registered it."""
        registration = self._registrations.get(ns)
        return None if registration is None else registration.value

    def describe(self, *, redact_secrets: bool = False) -> dict[str, JsonObject]:
        """Schema, value, layers and revision of every registered section, detached.

        With `redact_secrets` secret fields are cut from all layers and listed under `secrets`; whatever leaves the
        process must ask for that.
        """
        result: dict[str, JsonObject] = {}
        for ns, registration in self._registrations.items():
            schema = registration.schema.json_schema()
            redactor = Redactor(schema) if redact_secrets else None
            entry: JsonObject = {
                "ns": ns,
                "schema": schema,
                "value": registration.value.to_wire(),
                "revision": self.revision(ns),
                "applies": registration.applies,
            }
            if registration.base:
                entry["base"] = thaw(registration.base)
            if ns in self._sections:
                entry["user"] = thaw(self._sections[ns])
            if redactor is not None:
                entry["secrets"] = redactor.slots(entry["value"])
                for layer in ("value", "base", "user"):
                    if layer in entry:
                        entry[layer] = redactor.cut(entry[layer])
            result[ns] = entry
        return result

    def revision(self, ns: str) -> int:
        """Counts the changes of the stored section `ns` since the service started."""
        return self._revisions.get(ns, 0)

    # -- writes ------------------------------------------------------------------------------------------------------

    async def update(self, ns: str, patch: Mapping[str, Any], *, expected_revision: int | None = None) -> None:
        """Deep-merge `patch` into the user's section; None in it means not given."""
        await self._write_patch(self._registered(ns), patch, expected_revision)

    async def replace(self, ns: str, section: Mapping[str, Any], *, expected_revision: int | None = None) -> None:
        """Replace the user's section; `{}` resets it."""
        await self._write_section(self._registered(ns), section, expected_revision)

    async def mutate(
        self, ns: str, operations: Sequence[Mapping[str, Any]], *, expected_revision: int | None = None
    ) -> None:
        """Apply `{"op": "set"|"unset", "path": [...], "value"?, "known"?}` edits in order to the user's section.

        With `known` a key that the section does not have is refused; without it is stored, and warned of.
        """
        registration = self._registered(ns)
        checked = check_operations(ns, operations)
        await self._write(registration, lambda section: operated(section, checked), expected_revision, checked)

    async def _write_patch(self, registration: _Registration, patch: Mapping[str, Any], expected: int | None) -> None:
        frozen = check_data(registration.ns, patch, "the patch")
        await self._write(registration, lambda section: patched(section, frozen), expected)

    async def _write_section(
        self, registration: _Registration, section: Mapping[str, Any], expected: int | None
    ) -> None:
        frozen = check_data(registration.ns, section, "the section")
        await self._write(registration, lambda _section: frozen, expected)

    def _registered(self, ns: str) -> _Registration:
        self._check_open(ns)
        registration = self._registrations.get(ns)
        if registration is None:
            raise SettingsError(f'settings section "{ns}" is not registered', "SETTINGS_NOT_REGISTERED")
        return registration

    def _check_open(self, ns: str) -> None:
        if self.chain.closing:
            raise SettingsError(f'settings section "{ns}": the settings service is disposed', "SETTINGS_DISPOSED")
        if not self.writable:
            raise SettingsError(f'settings section "{ns}": the settings are read-only', "SETTINGS_READ_ONLY")

    async def _write(
        self, registration: _Registration, change: Apply, expected: int | None, edits: Sequence[JsonObject] = ()
    ) -> None:
        self._check_open(registration.ns)
        await self.chain.run(lambda: self._run_write(registration, change, expected, edits))

    async def _run_write(
        self, registration: _Registration, change: Apply, expected: int | None, edits: Sequence[JsonObject]
    ) -> None:
        ns = registration.ns
        if self._registrations.get(ns) is not registration:
            raise SettingsError(
                f'settings section "{ns}": its owner was unloaded before the write began', "SETTINGS_OWNER_GONE"
            )

        def apply(section: JsonObject) -> JsonObject:
            if expected is not None and expected != self.revision(ns):
                raise SettingsConflictError(ns, expected, self.revision(ns))
            changed = snapshot_json(change(section))
            value = self._resolve(registration, changed)  # type: ignore[arg-type]
            refuse_unknown(ns, edits, value.warnings)
            return changed  # type: ignore[return-value]

        stored = await self.persist(ns, apply)
        owned_still = self._registrations.get(ns) is registration
        self._commit(ns, stored, "update", notify=owned_still)

    # -- commits -----------------------------------------------------------------------------------------------------

    def publish(self, document: Mapping[str, JsonObject]) -> None:
        """Take over a document that somebody else changed; each section resolves on its own."""
        failure: InvariantError | None = None
        for ns in dict.fromkeys([*self._sections, *document]):
            try:
                self._commit(ns, document.get(ns, {}), "provider")
            except InvariantError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _commit(
        self, ns: str, section: JsonObject, source: Literal["update", "provider"], *, notify: bool = True
    ) -> None:
        if json_equal(self._sections.get(ns, {}), section):
            return
        if section:
            self._sections[ns] = snapshot_json(section)  # type: ignore[assignment]
        else:
            self._sections.pop(ns, None)
        self._revisions[ns] = revision = self.revision(ns) + 1
        if not notify:
            return
        failures: list[InvariantError] = []
        self._contained(failures, lambda: self.ctx.emit(SettingsDocumentUpdated(ns=ns, revision=revision)))
        registration = self._registrations.get(ns)
        if registration is not None:
            self._refresh(registration, source, failures)
        if failures:
            raise failures[0]

    def _refresh(
        self,
        registration: _Registration,
        source: Literal["update", "provider"],
        failures: list[InvariantError],
    ) -> None:
        """Resolve a section anew and tell who watches it, if its value is another one."""
        try:
            value = self._resolve(registration, self._sections.get(registration.ns, {}))
        except SettingsError as error:
            where = self._place_of(registration.ns, error)
            self._warn(registration, frozenset([f"{where}{error}; the last good value stays"]))
            return
        prev, registration.value = registration.value, value
        self._warn_unknown(registration)
        if value == prev:
            return
        for watcher in list(registration.watchers):
            self._contained(failures, lambda watcher=watcher: self._deliver(watcher, value, prev))  # type: ignore[misc]
        event = SettingsUpdated(ns=registration.ns, next=value, prev=prev, source=source)
        self._contained(failures, lambda: self.ctx.emit(event))

    def _rebase(self, registration: _Registration, base: Mapping[str, Any]) -> None:
        registration.base = check_data(registration.ns, base, "the base")
        if self._registrations.get(registration.ns) is not registration:
            return
        failures: list[InvariantError] = []
        self._refresh(registration, "provider", failures)
        if failures:
            raise failures[0]

    def _contained(self, failures: list[InvariantError], call: Callable[[], Any]) -> None:
        try:
            call()
        except InvariantError as error:
            failures.append(error)
        except Exception:
            self.ctx.logger.exception("a settings observer failed")

    def _resolve(self, registration: _Registration, section: JsonObject) -> ConfigModel:
        ns = registration.ns
        try:
            value = registration.schema.validate(layered(registration.base, section))
            if registration.validate is not None:
                registration.validate(value)
        except ConfigError as error:
            problems = "; ".join(f"{ns}.{path}: {message}" if path else message for path, message in error.issues)
            raise SettingsError(f'settings section "{ns}" is refused: {problems}', "SETTINGS_INVALID") from error
        except Exception as error:
            raise SettingsError(
                f'settings section "{ns}" is refused: {describe_error(error)}', "SETTINGS_INVALID"
            ) from error
        return value

    def _place_of(self, ns: str, error: SettingsError) -> str:
        issues = getattr(error.__cause__, "issues", None)
        return self.place(ns, getattr(issues[0], "keys", ()) if issues else ())

    def _warn_unknown(self, registration: _Registration) -> None:
        ns = registration.ns
        self._warn(
            registration,
            frozenset(
                f"{self.place(ns, getattr(issue, 'keys', ()))}{ns}.{issue[0]}: {issue[1]}"
                for issue in registration.value.warnings
            ),
        )

    def _warn(self, registration: _Registration, messages: frozenset[str]) -> None:
        """Log what is new among the things wrong with a section; what is mended may be said again later."""
        for message in sorted(messages - registration.warned):
            self.ctx.logger.warning("%s", message)
        registration.warned = messages

    # -- watchers ----------------------------------------------------------------------------------------------------

    def _deliver(self, watcher: _Watcher, value: Any, prev: Any) -> None:
        if watcher.busy:
            watcher.queue.append((value, prev))
            return
        pending = watcher.callback(value, prev)
        if isinstance(pending, Awaitable):
            watcher.busy = True
            self.chain.start_beside(lambda: self._drain(watcher, pending))

    async def _drain(self, watcher: _Watcher, pending: Awaitable[Any]) -> None:
        """Await an asynchronous watcher's calls one after another."""
        current: Any = pending
        while True:
            try:
                if isinstance(current, Awaitable):
                    await current
            except Exception:
                self.ctx.logger.exception("a settings watcher failed")
            if not watcher.queue:
                watcher.busy = False
                return
            value, prev = watcher.queue.popleft()
            try:
                current = watcher.callback(value, prev)
            except Exception:
                self.ctx.logger.exception("a settings watcher failed")
                current = None
