"""The editor profile's view of a session: the stream as it comes, tool calls with their state, the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .committed import ALLOW_ONCE, REJECT_ONCE, message_chunk, send_image
from .outbox import Outbox
from .streamed_text import StreamedText
from .tool_calls import ToolCalls

if TYPE_CHECKING:
    from dsh.cordis import Context
    from dsh.core.session_event import SessionEvent
    from dsh.core.tool_presentation import PresentedResult
    from dsh.core.tools import ToolDefinition

MESSAGE, THOUGHT, USER = "agent_message_chunk", "agent_thought_chunk", "user_message_chunk"
BROKE_OFF = "\n\n[The reply broke off here; it follows once more.]\n\n"


class EditorView:
    """Turns events of one session into updates, live or from the log."""

    def __init__(
        self, ctx: Context, outbox: Outbox, cwd: str | None, find_tool: Callable[[str], ToolDefinition | None]
    ) -> None:
        self._ctx = ctx
        self._outbox = outbox
        self._text = StreamedText(outbox)
        self._new_calls = partial(ToolCalls, outbox, cwd, find_tool)
        self._calls = self._new_calls()
        self._streamed: dict[int, int] = {}
        """Characters sent already, by block of the running reply."""
        self._visible = False
        self._broke_off = False
        self._own: set[str] = set()
        self._rules: dict[tuple[str, Any], str] = {}
        self._window: int | None = None

    def sent(self, message_id: str) -> None:
        """The client itself gave the message of this id, and shows it."""
        self._own.add(message_id)

    def session_event(self, event: SessionEvent) -> None:
        """Take one event of the session as it is appended."""
        if event.type == "assistant/chunk":
            self._chunk(event.data["chunk"])
            return
        if event.type == "assistant/message":
            self._text.flush()
            self._new_reply()
            for block in event.data["message"]["content"]:
                if block["type"] == "image":
                    send_image(self._ctx, self._outbox, MESSAGE, block["attachment"])
            self._used(event.data.get("usage"))
        elif event.type == "user/message":
            if event.data["id"] in self._own:
                self._own.discard(event.data["id"])
            else:
                self._user_message(event.data)
        else:
            self._logged(event)

    def replay(self, events: Iterable[SessionEvent]) -> None:
        """Tell the whole history, to a client that has forgotten what it may have been told before."""
        self._calls = self._new_calls()
        usage: Mapping[str, int] | None = None
        for event in events:
            if event.type == "user/message":
                self._user_message(event.data)
            elif event.type == "assistant/message":
                for block in event.data["message"]["content"]:
                    if block["type"] == "image":
                        send_image(self._ctx, self._outbox, MESSAGE, block["attachment"])
                    elif block["type"] in ("text", "reasoning") and block["text"]:
                        kind = MESSAGE if block["type"] == "text" else THOUGHT
                        self._outbox.send(message_chunk(block["text"], kind))
                usage = event.data.get("usage", usage)
            else:
                self._logged(event)
        self._calls.give_up()
        self._used(usage)

    # -- permissions ----------------------------------------------------------------------------------------------

    def permission(self, call_id: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
        """How to ask about a call: the call as the client knows it, and the answers it may give."""
        self._text.flush()
        call, _ = self._calls.describe(call_id)
        always = {"optionId": "allow-always", "name": "Allow for this session", "kind": "allow_always"}
        never = {"optionId": "reject-always", "name": "Reject for this session", "kind": "reject_always"}
        return call, [ALLOW_ONCE, always, REJECT_ONCE, never]

    def remembered(self, tool_name: str, call_id: str) -> str | None:
        """The answer that the person gave once for all such calls of this session: ``allow`` or ``reject``."""
        return self._rules.get(self._rule(tool_name, call_id))

    def remember(self, tool_name: str, call_id: str, answer: str) -> None:
        """Keep an answer for all such calls of this session."""
        self._rules[self._rule(tool_name, call_id)] = answer

    def _rule(self, tool_name: str, call_id: str) -> tuple[str, Any]:
        """Calls that ask for more rights than usual are calls of another kind."""
        _, arguments = self._calls.describe(call_id)
        wider = arguments.get("sandbox_permissions") if isinstance(arguments, Mapping) else None
        return tool_name, wider if isinstance(wider, str) else None

    # -- the running reply ----------------------------------------------------------------------------------------

    def _chunk(self, chunk: Mapping[str, Any]) -> None:
        kind = chunk["type"]
        if self._broke_off:
            self._broke_off = False
            self._text.push(MESSAGE, BROKE_OFF)
        if kind == "text-delta":
            self._delta(MESSAGE, chunk["index"], chunk["text"])
        elif kind == "reasoning-delta":
            self._delta(THOUGHT, chunk["index"], chunk["text"])
        elif kind == "tool-call-delta":
            if name := chunk.get("name"):
                self._call_seen(chunk["id"], name)
        elif kind == "block-end":
            self._block_end(chunk["index"], chunk["block"])
        elif kind == "finish" and chunk["reason"]["kind"] in ("error", "aborted"):
            self._text.flush()
            self._calls.give_up()
            self._broke_off = self._visible
            self._new_reply()

    def _delta(self, kind: str, index: int, text: str) -> None:
        self._visible = True
        self._streamed[index] = self._streamed.get(index, 0) + len(text)
        self._text.push(kind, text)

    def _block_end(self, index: int, block: Mapping[str, Any]) -> None:
        """Not every adapter streams deltas: what is new in the whole block follows."""
        if block["type"] == "tool-call":
            self._call_seen(block["id"], block["name"])
        elif block["type"] in ("text", "reasoning"):
            rest = block["text"][self._streamed.get(index, 0) :]
            if rest:
                self._delta(MESSAGE if block["type"] == "text" else THOUGHT, index, rest)

    def _call_seen(self, call_id: str, name: str) -> None:
        self._text.flush()
        self._calls.seen(call_id, name)

    def _new_reply(self) -> None:
        self._streamed.clear()
        self._visible = False

    # -- what is told alike, live and from the log ----------------------------------------------------------------

    def _logged(self, event: SessionEvent) -> None:
        data = event.data
        if event.type == "tool/call":
            self._calls.started(data["callId"], data["name"], data["arguments"])
        elif event.type == "tool/result":
            block = data["message"]["content"][0]
            result: PresentedResult = {"content": block["content"], "isError": block.get("isError", False)}
            if "meta" in data:
                result["meta"] = data["meta"]
            self._calls.finished(block["toolCallId"], result)
        elif event.type == "todo/write":
            entries = [
                {"content": todo["content"], "priority": "medium", "status": todo["status"]} for todo in data["todos"]
            ]
            self._outbox.send({"sessionUpdate": "plan", "entries": entries})
        elif event.type == "session/title":
            self._outbox.send({"sessionUpdate": "session_info_update", "title": data["title"]})
        elif event.type == "request/context":
            self._window = data.get("contextWindow")
        elif event.type == "turn/end":
            self._text.flush()
            self._calls.give_up()
            self._broke_off = False
            self._new_reply()

    def _used(self, usage: Mapping[str, int] | None) -> None:
        """How full the model's window is after a reply."""
        if usage is not None and self._window is not None:
            parts = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")
            used = sum(usage.get(part, 0) for part in parts)
            self._outbox.send({"sessionUpdate": "usage_update", "used": used, "size": self._window})

    def _user_message(self, message: Mapping[str, Any]) -> None:
        if message["source"]["kind"] != "user":
            return
        self._text.flush()
        for block in message["content"]:
            if block["type"] == "text" and block["text"]:
                self._outbox.send(message_chunk(block["text"], USER))
            elif block["type"] == "image":
                send_image(self._ctx, self._outbox, USER, block["attachment"])
