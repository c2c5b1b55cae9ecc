"""Abstract services that the spine reads but does not provide: settings, session persistence, approval, commands.

They stand on this floor because ``dsh.core`` or plugins of any floor consume them; their providers live higher up
(``dsh.settings``, ``dsh.sessions``, ``dsh.policy``, ``dsh.interfaces``). Consumers work without any of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from dsh.cordis import ConfigModel, Context, Service, Waterfall
from dsh.cordis.records import record

if TYPE_CHECKING:
    from dsh.cordis import AbortSignal
    from dsh.cordis.jsonio import JsonObject, JsonValue

    from .session import Session
    from .session_event import SessionEvent
    from .session_header import SessionHeader
    from .session_store import SessionPreparation

M = TypeVar("M", bound=ConfigModel)
M_co = TypeVar("M_co", bound=ConfigModel, covariant=True)
Undo = Callable[[], Any]


class SettingsScope(Protocol[M_co]):
    """The view one consumer has of its own settings section."""

    def get(self) -> M_co:
        """The resolved section: schema defaults, then the row's values, then the user's."""

    def watch(self, callback: Callable[[Any, Any], Any]) -> Undo:
        """Call ``callback(next, previous)`` after each commit that changes the resolved value."""

    async def update(self, patch: Mapping[str, Any]) -> None:
        """Merge ``patch`` into the user's section; refused values change nothing."""

    async def replace(self, section: Mapping[str, Any]) -> None:
        """Replace the user's section; ``{}`` resets it."""

    def rebase(self, base: Mapping[str, Any]) -> None:
        """Put other row values under the user's section."""


class Settings(Service, name="settings"):
    """One user document of sections, layered over row config and observed live."""

    @abstractmethod
    def register(
        self,
        caller: Context,
        ns: str,
        schema: type[M],
        base: Mapping[str, Any] | None = None,
        *,
        applies: Literal["live", "restart"] = "live",
        validate: Callable[[M], None] | None = None,
    ) -> SettingsScope[M]:
        """Declare section ``ns``; the registration leaves with the calling fiber.

        Providers mark their override with ``@owned``. Raises ``HarnessError`` when the name is taken or the stored
        section fails ``schema`` or ``validate``.
        """

    @abstractmethod
    async def update(self, ns: str, patch: Mapping[str, Any], *, expected_revision: int | None = None) -> None:
        """Deep-merge ``patch`` into the user's section ``ns``."""

    @abstractmethod
    async def replace(self, ns: str, section: Mapping[str, Any], *, expected_revision: int | None = None) -> None:
        """Replace the user's section ``ns``."""

    @abstractmethod
    async def mutate(
        self, ns: str, operations: Sequence[Mapping[str, Any]], *, expected_revision: int | None = None
    ) -> None:
        """Apply ordered ``{"op": "set"|"unset", "path": [...], "value"?, "known"?}`` edits to the user's section."""

    @abstractmethod
    def get(self, ns: str) -> ConfigModel | None:
        """The resolved value of section ``ns``; ``None`` when nobody registered it."""

    @abstractmethod
    def describe(self, *, redact_secrets: bool = False) -> dict[str, JsonObject]:
        """Schema, value, layers and revision of every registered section."""


class SettingsSection(Generic[M]):
    """Reads a section while a settings service exists and the row's own value otherwise."""

    def __init__(self, entry: M) -> None:
        self._entry = entry
        self._scope: SettingsScope[M] | None = None

    def get(self) -> M:
        """The value in force now; read it at use and do not keep it."""
        return self._entry if self._scope is None else self._scope.get()

    def rebase(self, entry: M) -> None:
        """Use the row values ``entry`` from now on: under the user's section, or alone."""
        self._entry = entry
        if self._scope is not None:
            self._scope.rebase(entry.to_wire())


def install_settings_section(
    ctx: Context,
    ns: str,
    schema: type[M],
    entry: M,
    *,
    on_change: Callable[[M], Any] | None = None,
    validate: Callable[[M], None] | None = None,
) -> SettingsSection[M]:
    """Layer the user's section ``ns`` over ``entry`` for as long as ``ctx`` lives.

    Works without a settings service: the section then answers ``entry``. ``on_change(value)`` runs when a provider
    appears, when the value changes live, and when the provider leaves while the consumer stays.
    """
    section = SettingsSection(entry)

    def attach(child: Context) -> None:
        scope = child[Settings].register(ns, schema, section._entry.to_wire(), validate=validate)  # type: ignore[arg-type]
        section._scope = scope

        def detach() -> None:
            section._scope = None
            if on_change is not None and ctx.fiber.is_active:
                on_change(section._entry)

        child.defer(detach)
        if on_change is not None:
            notify = on_change
            child.defer(scope.watch(lambda value, _previous: notify(value)))
            notify(scope.get())

    ctx.inject([Settings], attach)
    return section


@record
class SessionLocation:
    """Where a session's artifact is or would be."""

    kind: str
    path: str


@record
class SessionSnapshot:
    """A stored session's header and an opaque revision: an equal revision means an unchanged artifact."""

    header: SessionHeader
    revision: str


class SessionPersistence(Service, name="sessionPersistence"):
    """Where logs live between processes. One backend a composition."""

    supports_raw_artifacts: bool = False

    @abstractmethod
    def locate(self, header: SessionHeader) -> SessionLocation | None:
        """Where this session's artifact would be, without I/O."""

    @abstractmethod
    async def create(self, header: SessionHeader) -> None:
        """Register a session; nothing reaches the disk before its first append."""

    @abstractmethod
    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """Store ``events`` after the stored tail; durable when it returns."""

    @abstractmethod
    async def prepare(self, session_id: str, signal: AbortSignal | None = None) -> SessionPreparation:
        """Load, repair durably and reserve one unpublished session; ``release()`` gives it back."""

    @abstractmethod
    async def load(self, session_id: str) -> tuple[SessionHeader, list[SessionEvent]]:
        """Header and events, repaired durably."""

    @abstractmethod
    async def inspect(self, session_id: str) -> tuple[SessionHeader, list[SessionEvent]]:
        """Header and events, read only; repair events exist in memory alone."""

    @abstractmethod
    async def read_from(self, session_id: str, seq: int) -> list[SessionEvent]:
        """The stored suffix starting at ``seq``; empty beyond the end."""

    @abstractmethod
    async def list(self) -> Sequence[SessionHeader]:
        """Headers of every readable stored session."""

    @abstractmethod
    async def list_snapshots(self) -> Sequence[SessionSnapshot]:
        """Headers and revisions of every readable stored session."""

    @abstractmethod
    async def read_raw(self, session_id: str) -> JsonObject | None:
        """The stored bytes as JSONL text: ``{header, filename, content}``; ``None`` when absent."""

    @abstractmethod
    async def delete(self, session_id: str) -> None:
        """Remove a stored session; refused while it is live or leased."""

    async def reserve(self, session: Session) -> None:
        """Take the right to write a named new session before it is published. Backends without leases do nothing."""

    def unreserve(self, session: Session) -> None:
        """Give back what :meth:`reserve` took for a session that was never published."""


class AgentDefaultModel(Service, name="agentDefaultModel"):
    """The route of agents that name none; read at each turn."""

    @abstractmethod
    def current_selection(self) -> Mapping[str, Any] | None:
        """``{"provider", "model", "reasoningEffort"?}`` of the first usable candidate; ``None`` without one."""


class Commands(Service, name="commands"):
    """What a person can type as ``/name``. Only consoles and daemons have it: ``ctx.inject([Commands], add)``."""

    @abstractmethod
    def register(
        self,
        caller: Context,
        name: str,
        run: Callable[[str, Any], Any],
        help: str,
        complete: Callable[[str], Iterable[Any]] | None = None,
        *,
        argument: str = "",
    ) -> Undo:
        """Add ``/name`` for as long as the calling fiber lives.

        ``run(argument, screen)`` gets what was typed behind the name and prints by ``screen.print(text)``; it may be
        async, and what it raises is shown. ``help`` is one line, ``argument`` names what may follow (``"KEY VALUE"``).
        ``complete(argument)`` answers words that may stand in the place of the last one. Providers mark their override
        with ``@owned``. Raises ``HarnessError`` for a name that is malformed or taken.
        """


ApprovalOutcome = Literal["allowed-once", "rejected", "cancelled", "unavailable"]


class ApprovalRequest(Waterfall[ApprovalOutcome], name="approval/request", scoped_by="agent"):
    """The approval service asks whoever can reach a person about one action of ``agent``; by default nobody can.

    No arguments travel: a front end finds them in the log under ``call_id``. When ``signal`` fires the question is
    over and a late answer does not count.
    """

    agent: Any
    tool_name: str
    call_id: str | None = None
    reason: str | None = None
    signal: AbortSignal | None = None


class Approval(Service, name="approval"):
    """Asks a person (or a policy) whether one tool call may run."""

    @abstractmethod
    async def request(
        self,
        *,
        agent: Any,
        tool_name: str,
        call_id: str,
        arguments: JsonValue,
        reason: str | None,
        signal: AbortSignal | None,
    ) -> ApprovalOutcome:
        """Decide one call; never raises for a decision."""
