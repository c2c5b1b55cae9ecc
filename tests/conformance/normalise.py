"""Making two recordings of one run comparable: ids, paths, times and prompt texts become placeholders.

Apply to both sides. Nothing that differs on purpose belongs here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_SPILL_NAME = r"/session-[0-9a-f]{12}/[0-9a-f]{12}-([^\s)]+?)(?=\. Use read with offset/limit|[\s)]|$)"
_BOUNDARY = r"\s<>'\"`()\[\]{},;:!?="
_EVENT_READ = re.compile(r'"seq": \d+')
_EVENT_TIME = re.compile(r'"time": \d+')
_EVENT_OMITTED = re.compile(r"\b\d+(?= (?:more )?bytes omitted)")
_GOAL_TIME = re.compile(r'("(?:createdAt|updatedAt|clearedAt)": ?)\d+')
_GOAL_KEYS = frozenset({"createdAt", "updatedAt", "clearedAt"})


@dataclass(frozen=True)
class Normaliser:
    """Placeholders for one run.

    session_ids: ids of the run's logs. cwd: its workspace. aliases: other spellings of it (real paths). spill_root:
    where spilled tool output went. goal_times: also blank the times of goal records.
    """

    session_ids: Sequence[str] = ()
    cwd: str | None = None
    aliases: Sequence[str] = ()
    spill_root: str | None = None
    goal_times: bool = False

    def text(self, text: str) -> str:
        """Placeholders in one string."""
        for spelling in self._spellings():
            pattern = rf"(?:(?<=^)|(?<=[{_BOUNDARY}])){re.escape(spelling)}(?=$|[/{_BOUNDARY}]|\.(?:\s|$))"
            text = re.sub(pattern, lambda _: "{{cwd}}", text)
        root = re.escape(self.spill_root) if self.spill_root else r"[^\s<>'\"`()]*"
        text = re.sub(root + _SPILL_NAME, lambda match: f"{{{{spillLocator:{match[1]}}}}}", text)
        if _EVENT_READ.search(text) and _EVENT_TIME.search(text):
            text = _EVENT_TIME.sub('"time": {{eventTime}}', text)
            text = _EVENT_OMITTED.sub("{{eventOmittedBytes}}", text)
        for session_id in sorted(self.session_ids, key=len, reverse=True):
            text = text.replace(session_id, "{{sessionId}}")
        text = _UUID.sub("{{sessionId}}", text)
        return _GOAL_TIME.sub(r"\g<1>0", text) if self.goal_times else text

    def value(self, value: Any) -> Any:
        """Placeholders in every string of a JSON value, keys excepted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                key: 0 if self.goal_times and key in _GOAL_KEYS and type(item) in (int, float) else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def record(self, record: dict[str, Any]) -> dict[str, Any]:
        """One header, event or storage row, with times blanked and prompt texts masked; numbering kept."""
        out = dict(self.value(record))
        kind = out.get("type")
        if kind == "session":
            out["createdAt"] = 0
            return out
        for key in ("time", "time0"):
            if key in out:
                out[key] = 0
        data = out.get("data")
        if isinstance(data, dict):
            if isinstance(data.get("dt"), list):
                data["dt"] = [0] * len(data["dt"])
            if kind == "hook/result" and "durationMs" in data:
                data["durationMs"] = 0
            if kind == "request/header" and isinstance(data.get("header"), dict):
                for key in ("system", "tools"):
                    if key in data["header"]:
                        data["header"][key] = f"{{{{{key}}}}}"
        return out

    def log(self, records: Iterable[dict[str, Any]], keep_seq: bool = False) -> list[dict[str, Any]]:
        """A log in snapshot form: envelope numbers dropped from all but the header line."""
        dropped = {"time", "time0"} if keep_seq else {"seq", "time", "seq0", "time0"}
        out = []
        for record in records:
            normal = self.record(record)
            if normal.get("type") != "session":
                normal = {key: item for key, item in normal.items() if key not in dropped}
            out.append(normal)
        return out

    def frames(self, frames: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """JSON-RPC frames: request ids become 1, 2, 3… in first-seen order, then as any value."""
        number = _numbering()
        out = []
        for frame in frames:
            normal = self.value(frame)
            if normal.get("id") is not None:
                normal["id"] = number(frame["id"])
            out.append(normal)
        return out

    def _spellings(self) -> list[str]:
        paths = {path.rstrip("/") for path in (self.cwd, *self.aliases) if path}
        paths |= {f"/private{path}" for path in paths}
        return sorted(paths, key=len, reverse=True)


def _numbering() -> Callable[[object], int]:
    seen: dict[tuple[type, object], int] = {}
    return lambda id_: seen.setdefault((type(id_), id_), len(seen) + 1)
