"""The credentials seam: configs name a secret, this service knows its value.

A config holds a **reference** (`DEEPSEEK_API_KEY`), never a value. Consumers resolve it for each operation and keep
nothing, so that a changed key is in force for the next request.

    found = await ctx[Credentials].resolve("DEEPSEEK_API_KEY")
    key = found.value.reveal() if found else None
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from dsh.cordis import Emit, HarnessError, Service
from dsh.cordis.jsonio import JsonObject, json_equal
from dsh.cordis.records import record

CredentialSource = Literal["env", "file", "project-env", "user-env"]
RecordKind = Literal["api-key", "grant"]

REFERENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What the name of a credential looks like."""


class CredentialError(HarnessError):
    """A credential could not be stored or read; the text never holds a value."""

    code = "CREDENTIALS"


class Secret:
    """A value that must not be seen: it prints as `***` and says what it holds only when asked to."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The value itself; use it at once and keep it nowhere."""
        return self.__value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.__value

    def __hash__(self) -> int:
        return hash(self.__value)

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not pickled")


class CredentialRecord:
    """A stored record of a plugin; it prints as its kind and shows its content only when asked to."""

    __slots__ = ("__data", "kind")

    def __init__(self, kind: RecordKind, data: JsonObject) -> None:
        self.kind = kind
        self.__data = data

    def reveal(self) -> JsonObject:
        """`{"kind": "api-key", "key"?, "env"?}` or `{"kind": "grant", "payload": {...}}`, frozen."""
        return self.__data

    def __repr__(self) -> str:
        return f"<{self.kind} record ***>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CredentialRecord) and json_equal(other.reveal(), self.__data)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise TypeError("a credential record is not pickled")


Mutate = Callable[[CredentialRecord | None], "JsonObject | Awaitable[JsonObject | None] | None"]


@record
class ResolvedCredential:
    """The value a reference has now and which source supplied it."""

    value: Secret
    source: CredentialSource


@record
class CredentialInfo:
    """What may be shown of a reference: whether it has a value, from where, and whether `set` is allowed."""

    configured: bool
    source: CredentialSource | None
    writable: bool


@record
class RecordInfo:
    """What may be shown of a record."""

    configured: bool
    kind: RecordKind | None
    writable: bool


class CredentialReferenceUpdated(Emit, name="credentials/reference-updated"):
    """The stored value of `ref` changed, by this process or another; sent after the commit."""

    ref: str


class CredentialRecordUpdated(Emit, name="credentials/record-updated"):
    """The stored record `key` changed, by this process or another; sent after the commit."""

    key: str


class Credentials(Service, name="credentials"):
    """Secrets by reference, and records of plugins by key `<plugin>/<id>`."""

    @abstractmethod
    async def resolve(self, ref: str) -> ResolvedCredential | None:
        """The value of `ref` from its strongest source; None when no source has a non-empty one.

        Raises CredentialError for a malformed reference.
        """

    @abstractmethod
    def describe(self, ref: str) -> CredentialInfo:
        """Where `ref` gets its value, without the value. Raises CredentialError for a malformed reference."""

    @abstractmethod
    async def set(self, ref: str, value: str | Secret) -> None:
        """Store a non-empty value. Refused while the inherited environment supplies it. Raises CredentialError."""

    @abstractmethod
    async def unset(self, ref: str) -> None:
        """Forget the stored value; nothing happens when there is none. Raises CredentialError."""

    @abstractmethod
    async def read_record(self, key: str) -> CredentialRecord | None:
        """The record as it was written, or None."""

    @abstractmethod
    def describe_record(self, key: str) -> RecordInfo:
        """Whether a record exists and of which kind."""

    @abstractmethod
    def list_records(self) -> Sequence[tuple[str, RecordKind]]:
        """Key and kind of every record."""

    @abstractmethod
    async def modify_record(self, key: str, mutate: Mutate) -> CredentialRecord | None:
        """Change a record race-free, also against other processes.

        `mutate(current)`, which may be a coroutine function, runs under the document's lock on freshly read content
        and returns the new record as plain data (see `CredentialRecord.reveal`), or None to leave it. It must not
        write credentials itself. Returns the record in force afterwards. Raises CredentialError, and whatever
        `mutate` raises.
        """

    @abstractmethod
    async def delete_record(self, key: str) -> None:
        """Remove a record; nothing happens when there is none."""
