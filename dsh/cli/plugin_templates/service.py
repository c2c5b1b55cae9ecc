"""A service for other plugins: ``myPlugin`` keeps greetings by language.

A plugin beside this file uses it by importing the class and asking for it, and runs whenever it is there:

    from .my_plugin import MyPlugin

    def apply(ctx: Context, config: Config, greetings: MyPlugin) -> None:
        greetings.add("de", "Hallo")
"""

from __future__ import annotations

from dsh.cordis import ConfigModel, Context, Disposer, HarnessError, Service, field, owned


class Config(ConfigModel):
    """What the row's ``config`` may hold; a field ``default_language`` is the key ``defaultLanguage``."""

    default_language: str = field("en", live=True, description="Language when a caller names none")


class MyPlugin(Service, name="myPlugin"):
    """Greetings by language. A service class is a plugin itself; async ``start`` and ``stop`` methods are optional."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._config = config
        self._words = {"en": "Hello"}

    def greet(self, name: str, language: str | None = None) -> str:
        """Greet somebody. Raises HarnessError for a language nobody added."""
        language = language or self._config.default_language
        if language not in self._words:
            raise HarnessError(f'no greeting for "{language}"; there are {", ".join(self._words)}', "UNKNOWN_LANGUAGE")
        return f"{self._words[language]}, {name}!"

    @owned
    def add(self, caller: Context, language: str, word: str) -> Disposer:
        """Add a greeting for as long as the calling plugin is there: `caller` is filled in with its context."""
        self._words[language] = word
        return caller.defer(lambda: self._words.pop(language, None), f"greeting {language}")
