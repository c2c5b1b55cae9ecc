"""Failures of the tool layer, and how any thrown value becomes the failure a model reads."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.cordis.errors import HarnessError

from . import texts


class ToolRegistrationError(HarnessError):
    """A tool, restriction or guard that cannot be registered."""

    code = "INVALID_TOOL"


class JsonSchemaError(HarnessError):
    """A schema outside the supported subset; `violations` lists everything that is wrong with it."""

    code = "UNSUPPORTED_SCHEMA"

    def __init__(self, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("unsupported JSON schema: " + "; ".join(self.violations))


class ToolNotFoundError(HarnessError):
    """A call names a tool that is not visible to its agent."""

    code = "UNKNOWN_TOOL"

    def __init__(self, name: str, how: str | None = None) -> None:
        super().__init__(texts.unknown_tool(name, how))


class ToolArgsError(HarnessError):
    """Arguments that do not fit the tool's parameters; `violations` lists all of them."""

    code = "INVALID_ARGS"

    def __init__(self, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        super().__init__(texts.invalid_arguments(self.violations))


class ToolOutputError(HarnessError):
    """A tool returned something that its own output declaration does not allow."""

    code = "INVALID_TOOL_OUTPUT"

    def __init__(self, name: str, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        super().__init__(texts.invalid_output(name, self.violations))


class ToolTimeoutError(HarnessError):
    """A call ran longer than its tool allows."""

    code = "TOOL_TIMEOUT"

    def __init__(self, milliseconds: float) -> None:
        super().__init__(f"tool call timed out after {milliseconds:.15g}ms")
