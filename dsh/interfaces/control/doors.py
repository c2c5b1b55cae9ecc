"""Who may use the control API: the owner of the socket's process, and on TCP whoever holds the token.

The API can run shell commands. A page in a browser must not reach it: on TCP the Host must be a loopback name (no
rebinding of a foreign name), an Origin must be our own, and the token is asked for as a bearer token, which no page of
another origin can send.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from .messages import ApiError


class Door(Protocol):
    """One way in."""

    def admits(self, peer: Any) -> bool:
        """Whether a new connection may talk at all; `peer` is the transport's socket."""

    def check(self, headers: Mapping[str, str]) -> None:
        """Judge one request. Raises ApiError."""


class SocketDoor:
    """The Unix socket: the process at the other end must be of this user, or of root."""

    def admits(self, peer: Any) -> bool:
        option = getattr(socket, "SO_PEERCRED", None)
        if option is None:
            return True  # the folder and the socket are closed to others
        try:
            _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, option, 12))
        except OSError:  # it has left already
            return False
        return uid in (os.geteuid(), 0)

    def check(self, headers: Mapping[str, str]) -> None:
        if "origin" in headers:
            raise ApiError(403, "FOREIGN_ORIGIN", "a browser has no business at this socket")


class TokenDoor:
    """TCP on loopback."""

    def __init__(self, port: int, token: str) -> None:
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self._token = token.encode()

    def admits(self, peer: Any) -> bool:
        return True

    def check(self, headers: Mapping[str, str]) -> None:
        if headers.get("host", "").lower() not in self._hosts:
            raise ApiError(403, "FOREIGN_HOST", "the Host header must name this loopback address")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self._hosts}:
            raise ApiError(403, "FOREIGN_ORIGIN", "requests of other origins are refused")
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            raise ApiError(401, "NO_TOKEN", "the bearer token is missing or wrong", WWW_Authenticate="Bearer")
