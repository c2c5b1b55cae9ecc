"""Events of the system prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsh.cordis import Emit, Waterfall

if TYPE_CHECKING:
    from .system_prompt import AssembleContext, Assembly


class SystemPromptAssemble(Waterfall["Assembly"], name="system-prompt/assemble", scoped_by=lambda e: e.context.scope):
    """An assembly was put together. The answer counts: edit `next()`'s, or answer another one."""

    assembly: Assembly
    context: AssembleContext


class SystemPromptChange(Emit, name="system-prompt/change", veto=True):
    """Something that feeds the prompt was registered or left. A raising listener undoes a registration."""
