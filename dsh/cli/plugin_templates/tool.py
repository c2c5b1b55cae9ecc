"""A tool that the agent can call: ``my_plugin``.

Save this file while ``dsh run`` is up, and this plugin alone is loaded anew. Edit ``greeting`` in its row of
cordis.yml, and the next call uses it without any restart.
"""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context, field
from dsh.core.tools import Tools


class Config(ConfigModel):
    """What the row's ``config`` may hold; a field ``max_words`` would be the key ``maxWords``."""

    greeting: str = field("Hello", live=True, description="Word before the name")


def apply(ctx: Context, config: Config, tools: Tools) -> None:
    """Start. Whatever is registered in here is taken back when the plugin leaves."""

    @tools.tool
    async def my_plugin(name: str) -> str:
        """Greet somebody.

        Args:
            name: Who is greeted.
        """
        return f"{config.greeting}, {name}!"
