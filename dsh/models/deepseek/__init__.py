"""The row ``llm-deepseek``: DeepSeek's models under the provider name ``deepseek-official``.

Mounts without a key, so that the catalog can be browsed; a call then fails with a sentence that says what to do. The
row's config is the base of the user's settings section ``llm-deepseek``; changes reach the next request.
"""

from __future__ import annotations

from dsh.cordis import Context
from dsh.core.seams import install_settings_section
from dsh.core.session_store import SessionDisposed
from dsh.llm.service import AdapterHandle, Llm
from dsh.models.deepseek.adapter import ROUTE, DeepSeekAdapter
from dsh.models.deepseek.config import Config

__all__ = ["ROUTE", "Config", "apply", "name"]

name = "llm-deepseek"


def apply(ctx: Context, config: Config, llm: Llm) -> None:
    """Serve the route for as long as the row is mounted."""
    handle: AdapterHandle | None = None

    def refresh(_value: object = None) -> None:
        # The service keeps the policy it captured; everything else is read at use.
        if handle is not None and section.get().retry_policy != llm.provider_retry_policy(ROUTE):
            handle.replace([ROUTE])

    section = install_settings_section(ctx, name, Config, config, on_change=refresh)
    adapter = DeepSeekAdapter(ctx, section.get)
    ctx.defer(adapter.close)
    ctx.on(SessionDisposed, lambda event: adapter.forget(event.session.id), global_=True)
    llm.register_configurable_providers(
        [{"provider": ROUTE, "displayName": "DeepSeek", "settingsNs": name, "settingsPath": [], "declared": True}]
    )
    handle = llm.register_adapter([ROUTE], adapter)

    def row_changed() -> None:
        section.rebase(config)
        refresh()

    ctx.defer(config.watch(row_changed))
    if adapter.usable(ROUTE) is None:
        ctx.spawn(adapter.warm, name="warm the HTTP client")
