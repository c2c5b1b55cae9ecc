"""The `invariants` service: checks that packages bring for their own rules, mounted beside the real thing.

A check vetoes what breaks a rule by raising; nothing depends on checks being there, and a list of patterns says which
packages are checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dsh.cordis import ConfigError, ConfigModel, Context, Disposer, HarnessError, InvariantError, Service, field, owned

Fail = Callable[[str], NoReturn]
"""Given to an installer: reports a broken rule of its package, by raising the InvariantError."""

Installer = Callable[[Context, Fail], Any]
"""Subscribes a package's checks on the context it is given, like a plugin body."""


class InvariantsConfig(ConfigModel):
    """Which packages are checked."""

    enabled: bool = field(True, description="Whether any check is installed")
    package_allowlist: list[str] = field([], description="Regular expressions; empty means every package")
    package_blocklist: list[str] = field([], description="Regular expressions; these win over the allow list")


class Invariants(Service, name="invariants"):
    """Registry of package-owned checks."""

    Config = InvariantsConfig

    def __init__(self, ctx: Context, config: InvariantsConfig) -> None:
        self.ctx = ctx
        self._enabled = config.enabled
        self._allow = _compile("packageAllowlist", config.package_allowlist)
        self._block = _compile("packageBlocklist", config.package_blocklist)
        self._packages: dict[str, object] = {}

    @owned
    def register(self, caller: Context, package: str, installer: Installer, inject: Sequence[Any] = ()) -> Disposer:
        """Install a package's checks in a child of the caller, while the services of `inject` are there.

        The name stays taken until the returned disposer runs or the caller unloads, even if the configuration leaves
        the package out; an installer that fails is logged and gives the name back. Raises HarnessError for a name
        that is taken.
        """
        if package in self._packages:
            raise HarnessError(f'invariants: package "{package}" is already registered', "INVARIANT_DUPLICATE")

        def fail(message: str) -> NoReturn:
            error = InvariantError("", f'invariant violated by "{package}": {message}')
            error.package = package
            raise error

        token = object()

        def give_back() -> None:
            if self._packages.get(package) is token:
                del self._packages[package]

        def install(ctx: Context) -> Any:
            try:
                return installer(ctx, fail)
            except Exception:
                ctx.logger.exception('the checks of "%s" could not be installed', package)
                give_back()
                ctx.fiber.dispose()  # undoes what the installer had set up

        def setup() -> Callable[[], Any]:
            self._packages[package] = token
            fiber = caller.inject(list(inject), install) if self._wanted(package) else None

            def undo() -> Any:
                give_back()
                return fiber.dispose() if fiber is not None else None

            return undo

        return caller.effect(setup, f"invariants({package})")

    def _wanted(self, package: str) -> bool:
        if not self._enabled or any(pattern.search(package) for pattern in self._block):
            return False
        return not self._allow or any(pattern.search(package) for pattern in self._allow)


def _compile(key: str, patterns: Sequence[str]) -> list[re.Pattern[str]]:
    compiled = []
    for index, pattern in enumerate(patterns):
        problem = None
        if not pattern or pattern != pattern.strip():
            problem = "must not be blank or padded with white space"
        elif pattern in patterns[:index]:
            problem = f'"{pattern}" is listed twice'
        else:
            try:
                compiled.append(re.compile(pattern))
            except re.error as error:
                problem = f'"{pattern}" is not a regular expression: {error}'
        if problem is not None:
            raise ConfigError([(f"{key}[{index}]", problem)])
    return compiled
