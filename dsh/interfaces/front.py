"""What a dialogue needs of the agent at the other end: one of this process (`console`) or of a daemon (`attach`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dsh.cordis.records import record

if TYPE_CHECKING:
    from .spending import Rates, Spending


@record
class Waiting:
    """A prompt in an agent's queue; ``steer``: it joins the running turn at its next step."""

    id: str
    text: str
    steer: bool = False


@record
class AgentLine:
    """An agent that one can talk to."""

    label: str | None
    session_id: str
    status: str
    model: str | None = None
    here: bool = False


@record
class Copied:
    """A copy of a session; ``cut``: without the turn that was running."""

    session_id: str
    cut: bool


@record
class SettingLine:
    """One setting or config key: dotted key, value in force, the layer it comes from, what it means, and the values
    there are, if they are few."""

    key: str
    value: Any
    layer: str
    about: str = ""
    allowed: tuple[Any, ...] = ()


class Host(Protocol):
    """What the process of an agent can be asked. Methods raise for what cannot be done."""

    async def settings(self) -> Sequence[SettingLine]:
        """Every known setting."""

    def known_settings(self) -> Sequence[SettingLine]:
        """The same as far as it is known without asking, for completion."""

    async def set_setting(self, key: str, value: Any) -> Sequence[str]:
        """Store a setting; warnings."""

    async def unset_setting(self, key: str) -> None:
        """Forget the person's own value of a setting."""

    async def config_text(self) -> str:
        """The composed rows as YAML, without secrets."""

    def known_config(self) -> Sequence[SettingLine]:
        """The keys `row.key` as far as they are known without asking, for completion."""

    async def edit_config(self, key: str, value: Any) -> Sequence[str]:
        """Change `row.key` in the composition's file; warnings."""

    async def picture(self) -> Mapping[str, Any]:
        """The rows and what runs; see `control.picture`."""


class Front(Protocol):
    """The agent one talks to. Methods raise for what cannot be done."""

    @property
    def running(self) -> bool:
        """Whether it is in a turn."""

    async def submit(self, text: str, *, steer: bool) -> None:
        """Give it a prompt. Raises for one that it did not get."""

    def cancel(self, *, keep_queue: bool) -> None:
        """Stop its turn."""

    def queue(self) -> Sequence[Waiting]:
        """What waits, in the order in which it will be taken."""

    async def take_back(self, message_id: str) -> bool:
        """Take a prompt out of the queue; False when it was taken already."""

    @property
    def folder(self) -> str:
        """The workspace of the agent, where `@` names files."""

    async def agents(self) -> Sequence[AgentLine]:
        """Every agent of the process."""

    def agent_names(self) -> Sequence[str]:
        """What `switch` takes, for completion."""

    async def switch(self, name: str) -> None:
        """Talk to the agent with this label, or with a session id that begins so."""

    async def fork(self) -> Copied:
        """Copy the conversation, as far as its turns have ended, into a new session and talk to that."""

    @property
    def host(self) -> Host:
        """The process in which it runs."""

    async def usage(self) -> Spending:
        """What the session has used so far."""

    def rates(self) -> Rates:
        """The prices that are stated now."""
