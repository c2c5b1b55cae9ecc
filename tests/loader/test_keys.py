"""Keys of a composition, one by one: what completion offers and tables print."""

from __future__ import annotations

from pathlib import Path

from dsh.cordis import ConfigModel, field
from dsh.interfaces.config_keys import known_keys
from dsh.loader.boot import make_source
from dsh.settings.keys import KeyInfo, keys_of

ROOT = Path(__file__).parents[2]


class Backoff(ConfigModel):
    delay_ms: int = field(500, min=1, max=60_000, unit="ms", description="Wait")


class Server(ConfigModel):
    name: str = field(description="Its name", min=1)
    inner: list[Server] = field(default_factory=list, description="Below it")


class Config(ConfigModel):
    mode: str | None = field(None, choices=("fast", "slow"), description="How")
    title: str | None = field(None, min=3, pattern="^[a-z]")
    api_key: str | None = field(None, secret=True)
    backoff: Backoff = field(default_factory=Backoff, live=True)
    servers: list[Server] = field(default_factory=list)
    limits: dict[str, Backoff] = field(default_factory=dict)
    anything: int | str | list[int] = field(3)


def by_path(keys: list[KeyInfo]) -> dict[str, KeyInfo]:
    return {each.path: each for each in keys}


def test_each_key_is_told_with_type_default_bounds_and_values() -> None:
    keys = by_path(keys_of(Config, "mine"))
    assert (keys["mode"].type, keys["mode"].allowed) == ("one of fast, slow", ("fast", "slow"))
    assert keys["title"].bounds == "≥ 3 characters, /^[a-z]/"
    assert keys["apiKey"].secret
    assert keys["anything"].type == "whole number or string or list of whole numbers"
    assert keys["anything"].default == 3
    delay = keys["backoff.delayMs"]
    assert (delay.key, delay.type, delay.default, delay.bounds) == (
        "mine.backoff.delayMs",
        "whole number",
        500,
        "1 to 60000",
    )
    assert delay.live, "a change inside a live key applies in place too"
    assert (delay.unit, delay.description) == ("ms", "Wait")


def test_keys_inside_lists_and_mappings_are_told_but_are_no_place() -> None:
    keys = by_path(keys_of(Config, "mine"))
    assert keys["servers"].type == "list of mappings" and keys["servers"].is_place
    assert keys["servers[].name"].required and not keys["servers[].name"].is_place
    assert not keys["limits.*.delayMs"].is_place
    assert "servers[].inner" in keys and "servers[].inner[].name" not in keys, "a model inside itself ends"


def test_the_keys_of_a_composition_are_those_of_its_plugins(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dsh.cordis import ConfigModel, field\n"
        "class Config(ConfigModel):\n    word: str = field('hello', live=True, description='Said first')\n"
        "def apply(ctx, config): ...\n"
    )
    (tmp_path / "inner.yml").write_text("- {id: inside, name: ./mine.py}\n")
    (tmp_path / "cordis.yml").write_text(
        "- {id: mine, name: ./mine.py}\n"
        "- {id: gone, name: ./gone.py}\n"
        "- {id: group, name: 'cordis:group', config: [{id: loop, name: dsh-agent-loop}]}\n"
        "- {id: more, name: 'cordis:include', config: {path: ./inner.yml}}\n"
    )
    found = {each.key: each for each in known_keys(make_source(tmp_path / "cordis.yml"))}
    assert (found["mine.word"].default, found["mine.word"].live, found["mine.word"].plugin) == (
        "hello",
        True,
        "./mine.py",
    )
    assert found["loop.maxParallelToolCalls"].bounds == "≥ 1"
    assert "more.path" in found and "more:inside.word" in found
    assert not any(key.startswith("gone.") for key in found)


def test_every_key_of_the_shipped_composition_says_what_it_is_for() -> None:
    keys = known_keys(make_source(ROOT / "cordis.yml"))
    assert len(keys) > 80
    assert [each.key for each in keys if not each.description] == []
