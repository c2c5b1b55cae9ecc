"""The compositions shipped under a name, and how `--profile NAME [--patch FILE]...` before a command chooses one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROFILES: Final = ("headless", "sdk", "web")

NOT_BUILT: Final = ("web",)

TAKES_CONFIG: Final = {"run": None, "exec": "--config", "resume": "--config", "acp": "--config", "jsonrpc": None}
"""Commands that start a composition, and the option that names it; None when it is an argument of its own."""


class ProfileError(ValueError):
    """A profile that cannot be started; the message is a sentence for the person who asked for it."""


def profile_file(name: str) -> Path:
    """The composition of a profile. Raises ProfileError."""
    if name in NOT_BUILT:
        raise ProfileError(f"the profile {name} is not built yet")
    if name not in PROFILES:
        raise ProfileError(f"{name!r} is no profile; there are {', '.join(PROFILES)}")
    return Path(__file__).with_name(f"{name}.yml")


def with_profile(name: str, patches: Sequence[Path], arguments: Sequence[str]) -> list[str]:
    """A command line (`exec TASK`) with the profile's composition and patches in it. Raises ProfileError."""
    command, *rest = arguments
    if command not in TAKES_CONFIG:
        raise ProfileError(f"--profile goes with {', '.join(TAKES_CONFIG)}, not with {command}")
    option = TAKES_CONFIG[command]
    chosen = [option] if option else []
    layers = [part for patch in patches for part in ("--patch", str(patch))]
    return [command, *chosen, str(profile_file(name)), *layers, *rest]
