"""The exceptions that carry a stable code, and how an exception is put into words."""

from __future__ import annotations

from typing import Any


class HarnessError(Exception):
    """An error with a stable `code` that may reach a log, a wire or a model.

    A subclass sets `code` as a class attribute; an instance may override it.
    """

    code: str = "UNKNOWN"

    def __init__(self, message: str = "", code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class CordisError(HarnessError):
    """Misuse of the plugin runtime: the message names the plugin, service or event and what to do."""

    code = "CORDIS"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message, code)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, str(self))


class InvariantError(CordisError):
    """A checked rule of a package was broken. Never contained by event dispatch."""

    code = "INVARIANT"

    def __init__(self, package: str, message: str) -> None:
        super().__init__("INVARIANT", f"{package}: {message}" if package else message)
        self.package = package
        self.detail = message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.detail)


class AbortError(HarnessError):
    """Work stopped because its abort signal fired; `reason` is what the aborting side gave."""

    code = "ABORTED"

    def __init__(self, message: str = "aborted", reason: Any = None) -> None:
        super().__init__(message)
        self.reason = reason


FAILURES = (Exception, SystemExit, KeyboardInterrupt)
"""What plugin code may raise as its own failure: a plugin's `sys.exit()` must not take the others with it.

A process ends by signals, and by whoever runs it when a plugin asks for that.
"""


def as_failure(error: BaseException) -> Exception:
    """One of `FAILURES` as an exception that asyncio does not carry out of the event loop."""
    if isinstance(error, Exception):
        return error
    failure = CordisError("PLUGIN_EXIT", f"raised {error!r}, which ends no process here")
    failure.__cause__ = error
    return failure


UNPRINTABLE = "<unprintable thrown value>"


def describe_error(error: object) -> str:
    """The text of an exception or any thrown value, for a person or a model. Never raises.

    Blank text gives the class name, so that a bare `TimeoutError()` still says something.
    """
    try:
        text = str(error)
    except Exception:
        message = _plain_message(error)
        return message if message is not None else UNPRINTABLE
    if text.strip():
        return text
    return _plain_message(error) or type(error).__name__


def _plain_message(error: object) -> str | None:
    try:
        message = getattr(error, "message", None)
    except Exception:
        return None
    return str(message) if isinstance(message, str) and message.strip() else None


def error_chain(error: BaseException) -> str:
    """One line that tells the whole story: `message: cause: cause`.

    Members of an exception group stand in brackets (`message [a; b]`); a cause that only repeats the text before
    it is skipped; a chain that loops ends in `<circular cause>`. Only declared causes (`raise … from …`) count.
    """
    return _chain(error, set())


def _chain(error: BaseException, seen: set[int]) -> str:
    parts: list[str] = []
    current: BaseException | None = error
    walked: list[int] = []
    while current is not None:
        if id(current) in seen:
            parts.append("<circular cause>")
            break
        seen.add(id(current))
        walked.append(id(current))
        text = describe_error(current)
        if isinstance(current, BaseExceptionGroup):
            text = current.message if current.message.strip() else type(current).__name__
            text += " [" + "; ".join(_chain(member, seen) for member in current.exceptions) + "]"
        if text not in parts and not (parts and parts[-1].endswith(text)):
            parts.append(text)
        current = current.__cause__
    # The same error may hang in two branches of a group; only a loop on one path is circular.
    seen.difference_update(walked)
    return ": ".join(parts)
