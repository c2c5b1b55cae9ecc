"""Row `session-title`, the service `sessionTitle`: what a session is called.

A title is an event of the log, `session/title`, and the latest one counts. The first message of a person gives a
fallback at once; a provider may offer a better one later; a person's own choice stays.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from dsh.cordis import AbortController, AbortSignal, ConfigModel, Context, Disposer, HarnessError, Service, field, owned
from dsh.cordis.errors import describe_error
from dsh.cordis.jsonio import JsonValue
from dsh.cordis.records import identity_struct, record
from dsh.cordis.spawn import Spawned
from dsh.core.agent_events import AgentRequest
from dsh.core.session import Session
from dsh.core.session_event import SessionEvent
from dsh.core.session_store import SessionDisposed, Sessions
from dsh.llm.call_config import CallConfig
from dsh.llm.service import LlmStream
from dsh.llm.types import StreamChunk, is_agent_loop_request
from dsh.sessions.projection import Projection, ProjectionWire, SessionProjections
from dsh.sessions.title_text import clean, cut

EVENT = "session/title"


class Config(ConfigModel):
    """Config of a row `session-title`."""

    fallback_max_words: int = field(min=1, live=True, description="Words of a fallback title")
    fallback_max_bytes: int = field(min=1, live=True, unit="bytes", description="Length of a fallback title in UTF-8")
    max_title_bytes: int = field(min=1, live=True, unit="bytes", description="Length of any title in UTF-8")

    def cross_check(self) -> list[tuple[str, str]]:
        """A fallback is a title too."""
        if self.fallback_max_bytes > self.max_title_bytes:
            return [("fallbackMaxBytes", f"must be at most maxTitleBytes ({self.max_title_bytes})")]
        return []


class SessionTitleInvalidError(HarnessError):
    """A title of which nothing is left once it is cleaned."""

    code = "SESSION_TITLE_INVALID"


@record
class Title:
    """One title. source: `{kind: fallback|user}` or `{kind: provider, provider, model?}`."""

    title: str
    message_seqs: tuple[int, ...]
    source: Mapping[str, Any]

    @property
    def pinned(self) -> bool:
        """Whether a person chose it."""
        return bool(self.source["kind"] == "user")


@record
class TitleJob:
    """What a provider is asked for: a title of `session`, whose person wrote `messages` (seq and cleaned text).

    signal: fires when nobody wants the answer any more.
    """

    session: Session
    messages: tuple[tuple[int, str], ...]
    signal: AbortSignal


@record
class ProposedTitle:
    """A provider's answer. message_seqs: what it was made from; model: `{provider, model}` if one was asked."""

    title: str
    message_seqs: tuple[int, ...]
    model: Mapping[str, str] | None = None


class TitleProvider(Protocol):
    """Makes better titles than the first words of a message.

    `propose` is called as the main request of a turn with new messages leaves; what it logs before it returns its
    awaitable stands before the reply. None keeps the present title, and so does an exception.
    """

    name: str

    def propose(self, job: TitleJob) -> Awaitable[ProposedTitle | None]: ...


@identity_struct
class _Known:
    """What has been read of one log: `read` is the number of the first event not looked at, `messages` are the seqs
    of what a person wrote, `asked` of them a provider has had."""

    read: int = 0
    title: Title | None = None
    messages: list[int] = dataclasses.field(default_factory=list)
    asked: int = 0
    job: AbortController | None = None


class SessionTitle(Service, name="sessionTitle"):
    """Titles of live sessions."""

    def __init__(self, ctx: Context, config: Config, sessions: Sessions) -> None:
        self.ctx = ctx
        self._config = config
        self._sessions = sessions
        self._known: WeakKeyDictionary[Session, _Known] = WeakKeyDictionary()
        self._provider: TitleProvider | None = None
        ctx.on(AgentRequest, self._before_request, prepend=True)
        ctx.on(LlmStream, self._request_leaves, prepend=True)
        ctx.on(SessionDisposed, self._disposed, global_=True)
        ctx.inject([SessionProjections], _project)

    def get(self, session: Session) -> Title | None:
        """The latest title."""
        return self._read(session).title

    def rename(self, session: Session, text: str) -> Title:
        """Give the session the title that a person chose; no provider changes it afterwards.

        Raises SessionTitleInvalidError when nothing of `text` can be shown.
        """
        known = self._read(session)
        title = self._set(session, user_title(text, self._config.max_title_bytes))
        if known.job is not None:
            known.job.abort("renamed")
        return title

    async def refresh(self, session: Session) -> Title | None:
        """Ask the provider anew, wait for it, and return the latest title. A person's own choice stays."""
        known = self._read(session)
        if self._provider is not None and known.messages and not (known.title is not None and known.title.pinned):
            await self._ask(self._provider, session, known, None).ended()
        return self._read(session).title

    @owned
    def register(self, caller: Context, provider: TitleProvider) -> Disposer:
        """Ask `provider` for titles while the calling plugin is there. Raises HarnessError if there is one already."""
        if self._provider is not None:
            raise HarnessError(
                f'session title provider "{self._provider.name}" is registered already', "SESSION_TITLE_PROVIDER"
            )

        def setup() -> Callable[[], None]:
            self._provider = provider
            return self._forget_provider

        return caller.effect(setup, f"session-title-provider({provider.name})")

    async def _before_request(self, event: AgentRequest, proceed: Callable[[], Awaitable[CallConfig]]) -> CallConfig:
        """Title an untitled session: all input of the step is in the log, its request is not."""
        session = event.agent.session
        known = self._read(session)
        if known.title is None:
            for seq, text in _texts(session, known.messages):
                title = cut(text, self._config.fallback_max_bytes, self._config.fallback_max_words)
                if title:
                    self._set(session, Title(title, (seq,), {"kind": "fallback"}))
                    break
        return await proceed()

    def _request_leaves(
        self, event: LlmStream, proceed: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        request, provider = event.request, self._provider
        if provider is not None and request.session_id is not None and is_agent_loop_request(request):
            session = self._sessions.get(request.session_id)
            if session is not None:
                known = self._read(session)
                if len(known.messages) > known.asked and not (known.title is not None and known.title.pinned):
                    self._ask(provider, session, known, request.signal)
        return proceed()

    def _disposed(self, event: SessionDisposed) -> None:
        known = self._known.pop(event.session, None)
        if known is not None and known.job is not None:
            known.job.abort("disposed")

    def _ask(
        self, provider: TitleProvider, session: Session, known: _Known, signal: AbortSignal | None
    ) -> Spawned[None]:
        """Begin a job in place of the one that may still run. signal: the turn it belongs to."""
        if known.job is not None:
            known.job.abort("superseded")
        known.job = AbortController()
        known.asked = len(known.messages)
        job = TitleJob(session, tuple(_texts(session, known.messages)), AbortSignal.any(signal, known.job.signal))
        try:
            answer = provider.propose(job)
        except Exception as error:
            answer = _failed(error)
        return self.ctx.spawn(self._finish, provider.name, job, answer, name=f"title of {session.id}")

    async def _finish(self, provider: str, job: TitleJob, answer: Awaitable[ProposedTitle | None]) -> None:
        session = job.session
        try:
            proposed = await answer
        except Exception as error:
            if not job.signal.aborted:
                self.ctx.logger.warning('no title for session "%s": %s', session.id, describe_error(error))
            return
        if proposed is None or job.signal.aborted or self._sessions.get(session.id) is not session:
            return
        title = cut(clean(proposed.title), self._config.max_title_bytes)
        if not title:
            self.ctx.logger.warning('no title for session "%s": "%s" answered an empty one', session.id, provider)
            return
        source: dict[str, Any] = {"kind": "provider", "provider": provider}
        if proposed.model is not None:
            source["model"] = dict(proposed.model)
        self._set(session, Title(title, proposed.message_seqs, source))

    def _set(self, session: Session, title: Title) -> Title:
        session.append(EVENT, title_data(title))
        return title

    def _read(self, session: Session) -> _Known:
        """What is known of a log, brought up to date."""
        known = self._known.get(session)
        if known is None:
            known = self._known[session] = _Known()
            self._look_at(known, session, session.first_live_seq)
            known.asked = len(known.messages)  # a resumed or forked history has had its chance
        self._look_at(known, session, session.seq)
        return known

    @staticmethod
    def _look_at(known: _Known, session: Session, end: int) -> None:
        for event in session.events[known.read : end]:
            if event.type == EVENT:
                known.title = title_of(event)
            elif event.type == "user/message" and event.data["source"]["kind"] == "user":
                known.messages.append(event.seq)
        known.read = end

    def _forget_provider(self) -> None:
        self._provider = None


def title_of(event: SessionEvent) -> Title:
    """The title that a `session/title` event gives."""
    data = event.data
    return Title(data["title"], tuple(data["messageSeqs"]), data["source"])


def title_data(title: Title) -> dict[str, Any]:
    """The data of the event that gives a title."""
    return {"title": title.title, "messageSeqs": list(title.message_seqs), "source": title.source}


def user_title(text: str, max_bytes: int) -> Title:
    """A person's own title. Raises SessionTitleInvalidError when nothing of `text` can be shown."""
    title = cut(clean(text), max_bytes)
    if not title:
        raise SessionTitleInvalidError("a session title needs at least one visible character")
    return Title(title, (), {"kind": "user"})


def fold_title(title: JsonValue, event: SessionEvent) -> JsonValue:
    """The text of the latest title, None before the first."""
    latest: JsonValue = event.data["title"] if event.type == EVENT else title
    return latest


def _project(ctx: Context) -> None:
    wire = ProjectionWire[JsonValue](lambda title: title)
    ctx[SessionProjections].register(Projection("title", lambda: None, fold_title, wire=wire))


def _texts(session: Session, seqs: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Seq and cleaned text of those messages that have text."""
    for seq in seqs:
        content = session.events[seq].data["content"]
        text = clean("\n".join(block["text"] for block in content if block["type"] == "text"))
        if text:
            yield seq, text


async def _failed(error: Exception) -> None:
    raise error
