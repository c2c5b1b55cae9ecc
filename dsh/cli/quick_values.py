"""Command line values that need no conversion, so that typer's machinery for it is imported only for those that do.

Newer versions of typer convert every value, absent ones too, with a validation library whose import takes as long as
starting a composition. A parameter of any other version, or whose parts have other names, is left as it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args, get_origin


class QuickValue:
    """Stands where a parameter keeps its converter; hands over to typer's own at the first value it does not know."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of the command's argument; the same that typer makes of it."""
        wanted = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is wanted:
            return value  # a text, or the default of a number
        if wanted is Path and _is_plain_path(value):
            return Path(value)
        if get_origin(wanted) is list and isinstance(value, tuple):
            (each,) = get_args(wanted)
            if each is str or (each is Path and all(map(_is_plain_path, value))):
                return [each(one) for one in value]
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def use_quick_values(params: Any) -> Any:
    """Let these parameters of a command take the short way; the same list."""
    for param in params:
        known = hasattr(param, "get_runtime_param") and hasattr(getattr(param, "type_descriptor", None), "annotation")
        if known and getattr(param, "_runtime_param", param) is None:
            param._runtime_param = QuickValue()
    return params


def use_quick_values_below(command: Any, ctx: Any) -> None:
    """The same for a command and all commands of a group; ``ctx`` knows the names of the help option."""
    use_quick_values(command.get_params(ctx))
    for inner in getattr(command, "commands", {}).values():
        use_quick_values_below(inner, ctx)


def _is_plain_path(value: Any) -> bool:
    """Whether there is nothing to complain about: typer refuses what exists and cannot be read."""
    return isinstance(value, str) and (os.access(value, os.R_OK) or not os.path.lexists(value))
