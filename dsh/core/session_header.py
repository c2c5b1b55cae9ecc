"""The session header: identity and origin of a log, kept beside it and never changed."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

from dsh.cordis.jsonio import JsonObject, NotJsonError, encode_str, snapshot_json
from dsh.cordis.records import record
from dsh.core.session_event import SESSION_FORMAT_VERSION, SessionError, is_count


class SessionHeaderError(SessionError):
    """A session header that breaks a rule; the message names the field."""

    code = "SESSION_HEADER"


@record
class SessionHeader:
    """Identity of a session.

    created_at: ms since the epoch. cwd: absolute workspace path. parent_session: id of the session this one was forked
    from or spawned by. seed_length: number of events copied at the fork; resumes do not change it. origin: "subagent"
    for a spawned child. delegation_depth: how many spawns lie above.
    """

    id: str
    created_at: int
    version: int = SESSION_FORMAT_VERSION
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: int | None = None
    origin: str | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None

    def to_wire(self) -> JsonObject:
        """A new dict in storage key order, without the `type` that marks the header line of a file."""
        wire = {
            "version": self.version,
            "id": self.id,
            "createdAt": self.created_at,
            "cwd": self.cwd,
            "parentSession": self.parent_session,
            "seedLength": self.seed_length,
            "origin": self.origin,
            "delegationDepth": self.delegation_depth,
            "agentPreset": self.agent_preset,
        }
        return {key: value for key, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, wire: object, session_id: str | None = None) -> SessionHeader:
        """Read a header object; keys it does not define are ignored. Raises SessionHeaderError."""
        try:
            record = snapshot_json(wire)
        except NotJsonError as error:
            raise SessionHeaderError("session header is not losslessly JSON-serializable") from error
        if not isinstance(record, Mapping):
            raise SessionHeaderError("session header is not a plain JSON record")
        get = record.get
        version = get("version")
        if type(version) is not int or version != SESSION_FORMAT_VERSION:
            raise SessionHeaderError(
                f"session header version must be {SESSION_FORMAT_VERSION}, got {encode_str(version)}"
            )
        id_ = get("id")
        if not isinstance(id_, str) or (session_id is not None and id_ != session_id):
            shown = id_ if isinstance(id_, str) else encode_str(id_)
            raise SessionHeaderError(f'session header id "{shown}" does not match session id "{session_id}"')
        for key in ("createdAt", "seedLength", "delegationDepth"):
            if not is_count(get(key)) and (key in record or key == "createdAt"):
                raise SessionHeaderError(f"session header {key} must be a non-negative safe integer")
        cwd = get("cwd")
        for key in ("cwd", "parentSession", "agentPreset"):
            if key in record and not isinstance(record[key], str):
                raise SessionHeaderError(f"session header {key} must be a string")
        if isinstance(cwd, str) and not os.path.isabs(cwd):
            raise SessionHeaderError(f'session header cwd must be an absolute path, got "{cwd}"')
        if "origin" in record and record["origin"] != "subagent":
            raise SessionHeaderError('session header origin must be "subagent"')
        return cls(
            id=id_,
            created_at=record["createdAt"],
            cwd=cwd,
            parent_session=get("parentSession"),
            seed_length=get("seedLength"),
            origin=get("origin"),
            delegation_depth=get("delegationDepth", 0),
            agent_preset=get("agentPreset"),
        )
