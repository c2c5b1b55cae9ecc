"""Row `session-persistence-jsonl`: session logs as JSON lines below one directory.

Provides `sessionPersistence`. Each live session's events are written behind within `writeBatchMaxDelayMs`; barriers
(`session/flush`) wait until they are durable. A session is written by one process at a time, under a lease.
"""

from __future__ import annotations

import os
from typing import Literal

from dsh.cordis import ConfigModel, Context, field
from dsh.core.session_store import Sessions
from dsh.sessions.coordinator import SessionCoordinator
from dsh.sessions.jsonl_store import JsonlStore
from dsh.sessions.lease import Leases
from dsh.sessions.log_file import LogWriter


class Config(ConfigModel):
    """Where and how session logs are kept."""

    root: str = field(min=1, description="Directory of the session logs; relative to the composition's folder")
    compression: Literal["zstd", "none"] | None = field(
        None, description="Encoding of new logs; unset: what the root already holds, zstd for an empty one"
    )
    pack_chunks: bool = field(True, description="Store runs of stream deltas as one row")
    write_batch_max_delay_ms: int = field(
        200, min=1, max=2147483647, unit="ms", live=True, description="Longest wait of an event before it is written"
    )
    prepared_session_cache_size: int = field(
        5, min=0, live=True, description="How many sessions stay loaded after they were given back unused"
    )
    durability: Literal["fsync", "os"] = field(
        "fsync", description="fsync: a write waits for the disk; os: for the operating system only"
    )
    lease: Literal["auto", "expiry"] = field(
        "auto",
        description="auto: a lock of the operating system where the mount has them; expiry: a lease that runs out",
    )
    lease_ttl_ms: int = field(15_000, min=100, unit="ms", description="Life of an expiring lease without renewal")
    lease_renew_ms: int = field(5_000, min=10, unit="ms", description="How often an expiring lease is renewed")


class JsonlSessionPersistence(SessionCoordinator):
    """Session persistence in JSONL files."""

    def __init__(self, ctx: Context, config: Config, sessions: Sessions) -> None:
        root = os.path.join(os.fspath(ctx.base_dir or os.getcwd()), os.path.expanduser(config.root))
        store = JsonlStore(
            os.path.abspath(root),
            compression=config.compression,
            writer=LogWriter(durable=config.durability == "fsync", pack_chunks=config.pack_chunks),
            leases=Leases(config.lease, config.lease_ttl_ms),
            logger=ctx.logger,
        )
        super().__init__(
            ctx,
            sessions,
            store,
            window_ms=lambda: config.write_batch_max_delay_ms,
            warm=lambda: config.prepared_session_cache_size,
            renew_ms=config.lease_renew_ms,
        )
        self.root = store.root
