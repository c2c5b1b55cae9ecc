"""Config models: typing, defaults, all issues with paths, suggestions, secrets, live swaps, JSON schema."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import schema as schema_package

from dsh.cordis.errors import CordisError
from dsh.cordis.schema import ConfigError, ConfigModel, field, inspect_config, validate_config


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Agent(ConfigModel):
    label: str
    max_tokens: int = field(100, min=1)


class Limits(ConfigModel):
    timeout_ms: int = field(1000, min=0, unit="ms", live=True)
    mode: Literal["fast", "slow"] = "fast"


class Config(ConfigModel):
    """What the plugin needs."""

    greeting: str = field("Hello", description="Word before the name", live=True)
    max_parallel_tool_calls: int = field(10, min=1, live=True)
    ratio: float = field(0.5, min=0, max=1)
    level: Level = Level.LOW
    agents: list[Agent]
    limits: Limits
    env: dict[str, str]
    base_url: str | None = field(None, key="baseURL")
    api_key: str | None = field(None, secret=True, min=5)
    names: list[str] = field(default_factory=lambda: ["a"])


def issues(model: Any, raw: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        model.validate(raw)
    return [tuple(issue) for issue in caught.value.issues]


def test_defaults_fill_at_every_level_and_are_fresh() -> None:
    first, second = Config.validate(None), Config.validate({"limits": {}})
    assert first.greeting == "Hello" and first.agents == [] and first.env == {} and first.base_url is None
    assert first.limits.timeout_ms == 1000 and first.level is Level.LOW
    assert first == second
    first.names.append("b")
    assert second.names == ["a"] and Config.validate({}).names == ["a"]


def test_quotes_around_a_number_or_a_truth_are_said_to_be_too_many_wherever_it_may_stand() -> None:
    class Quoted(ConfigModel):
        steps: int | None = 1
        share: float | None = None
        on: bool = True
        off: bool | None = None
        text: str | None = None
        ports: list[int] = field(default_factory=list)
        parts: list[str] | None = None

    raw = {"steps": "5", "share": ".5", "on": "true", "off": "False", "text": 5, "ports": ["80", "x"], "parts": "a"}
    assert issues(Quoted, raw) == [
        ("steps", 'must be a whole number, got "5" (remove the quotes)'),
        ("share", 'must be a number, got ".5" (remove the quotes)'),
        ("on", 'must be true or false, got "true" (remove the quotes)'),
        ("off", 'must be true or false, got "False" (remove the quotes)'),
        ("text", "must be a string, got 5 (put it in quotes)"),
        ("ports[0]", 'must be a whole number, got "80" (remove the quotes)'),
        ("ports[1]", 'must be a whole number, got "x"'),
        ("parts", 'must be a list, got "a" (each item begins with a dash)'),
    ]


def test_null_counts_as_missing() -> None:
    assert Config.validate({"greeting": None, "agents": None, "limits": None}) == Config.validate({})
    assert issues(Agent, {"label": None}) == [("label", "required (a string)")]


def test_camel_case_keys_become_snake_case_attributes() -> None:
    config = Config.validate(
        {"maxParallelToolCalls": 2, "baseURL": "http://x", "agents": [{"label": "a", "maxTokens": 5}]}
    )
    assert (config.max_parallel_tool_calls, config.base_url, config.agents[0].max_tokens) == (2, "http://x", 5)
    assert config.to_wire()["agents"] == [{"label": "a", "maxTokens": 5}]
    assert "baseURL" in config.to_wire() and "apiKey" not in config.to_wire()


def test_all_issues_are_collected_with_paths() -> None:
    found = issues(
        Config,
        {
            "greeting": 10,
            "maxParallelToolCalls": "4",
            "ratio": 2,
            "level": "hihg",
            "agents": [{"label": "ok"}, {"maxTokens": 0}, "x"],
            "limits": {"mode": "fsat", "timeoutMs": -1},
            "env": {"A": 1, "b c": None},
        },
    )
    assert found == [
        ("greeting", "must be a string, got 10 (put it in quotes)"),
        ("maxParallelToolCalls", 'must be a whole number, got "4" (remove the quotes)'),
        ("ratio", "must be ≤ 1, got 2.0"),
        ("level", 'must be one of "low", "high", got "hihg"; did you mean "high"?'),
        ("agents[1].label", "required (a string)"),
        ("agents[1].maxTokens", "must be ≥ 1, got 0"),
        ("agents[2]", 'must be a mapping, got "x" (write its keys, such as label: …)'),
        ("limits.timeoutMs", "must be ≥ 0 ms, got -1"),
        ("limits.mode", 'must be one of "fast", "slow", got "fsat"; did you mean "fast"?'),
        ("env.A", "must be a string, got 1 (put it in quotes)"),
        ('env["b c"]', "must be a string, got null"),
    ]


def test_issues_carry_allowed_values_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.validate({"limits": {"mode": "fsat"}}, where="cordis.yml:3")
    (issue,) = caught.value.issues
    assert issue.keys == ("limits", "mode") and issue.allowed == ("fast", "slow")  # type: ignore[attr-defined]
    assert issue.nearest == "fast"  # type: ignore[attr-defined]
    assert caught.value.code == "INVALID_CONFIG"
    assert str(caught.value).startswith("cordis.yml:3: limits.mode: must be one of")


def test_bool_is_never_a_number_and_a_fraction_no_whole_number() -> None:
    assert issues(Config, {"maxParallelToolCalls": True}) == [
        ("maxParallelToolCalls", "must be a whole number, got true")
    ]
    assert issues(Config, {"maxParallelToolCalls": 1.5}) == [
        ("maxParallelToolCalls", "must be a whole number, got 1.5")
    ]
    assert issues(Config, {"ratio": False}) == [("ratio", "must be a number, got false")]
    assert issues(Config, {"ratio": float("nan")})[0][0] == "ratio"
    assert issues(Config, {"ratio": 10**400})[0][0] == "ratio"
    assert type(Config.validate({"ratio": 1}).ratio) is float


def test_unknown_keys_warn_with_the_nearest_valid_key() -> None:
    config = Config.validate(
        {"maxParalelToolCalls": 1, "agents": [{"label": "x", "max_tokens": 3}], "zzz": 1, "timeoutMs": 1}
    )
    assert dict(config.warnings) == {
        "maxParalelToolCalls": 'unknown key; did you mean "maxParallelToolCalls"?',
        "agents[0].max_tokens": 'unknown key; did you mean "maxTokens"?',
        "timeoutMs": 'unknown key; did you mean "limits.timeoutMs"?',
        "zzz": "unknown key (known keys: greeting, maxParallelToolCalls, ratio, level, agents, limits, env, baseURL, "
        "apiKey, names)",
    }
    with pytest.raises(ConfigError, match="did you mean"):
        Config.validate({"maxParalelToolCalls": 1}, strict=True)


def test_a_key_that_is_set_already_is_what_a_misspelt_one_meant() -> None:
    config = Config.validate({"maxParallelToolCalls": 4, "maxParallelToolCals": 5})
    assert dict(config.warnings) == {"maxParallelToolCals": 'unknown key; did you mean "maxParallelToolCalls"?'}


def test_a_refused_config_still_reports_its_unknown_keys() -> None:
    with pytest.raises(ConfigError) as caught:
        Agent.validate({"lable": "x"})
    assert [tuple(issue) for issue in caught.value.issues] == [("label", "required (a string)")]
    assert [tuple(issue) for issue in caught.value.warnings] == [("lable", 'unknown key; did you mean "label"?')]


def test_free_form_mappings_keep_any_key() -> None:
    class Free(ConfigModel):
        extra: dict[str, Any]
        anything: Any = None

    config = Free.validate({"extra": {"q": {"r": 1}}, "anything": [1, {"x": 2}]})
    assert config.extra == {"q": {"r": 1}} and config.anything == [1, {"x": 2}] and config.warnings == []


def test_secret_values_never_show() -> None:
    config = Config.validate({"apiKey": "sk-12345"})
    assert "sk-12345" not in repr(config) and "***" in repr(config)
    assert config.to_wire()["apiKey"] == "sk-12345" and config.to_wire(redact=True)["apiKey"] == "***"

    class Vault(ConfigModel):
        key: Annotated[str, schema_package.Regex("^sk-")] = field("", secret=True)
        pin: int = field(0, role="secret", max=10)
        parts: list[str] = field(default_factory=list, secret=True)

    with pytest.raises(ConfigError) as caught:
        Vault.validate({"key": "hunter2", "pin": 4711, "parts": [815]})
    assert [issue[0] for issue in caught.value.issues] == ["key", "pin", "parts[0]"]
    for value in ("hunter2", "4711", "815"):
        assert value not in str(caught.value)


def test_unions_are_tried_in_order_and_the_meant_branch_is_blamed() -> None:
    class Http(ConfigModel):
        kind: Literal["http"]
        url: str

    class Stdio(ConfigModel):
        kind: Literal["stdio"]
        command: list[str] = field(min=1)

    class Servers(ConfigModel):
        server: Http | Stdio | str = "none"
        size: int | Literal["auto"] = "auto"

    assert isinstance(Servers.validate({"server": {"kind": "stdio", "command": ["x"]}}).server, Stdio)
    assert Servers.validate({"server": "text", "size": 3}).size == 3
    assert issues(Servers, {"server": {"kind": "stdio", "command": []}}) == [
        ("server.command", "must have at least 1 items")
    ]
    assert issues(Servers, {"server": {"kind": "http"}}) == [("server.url", "required (a string)")]
    assert issues(Servers, {"size": "atuo"}) == [
        ("size", 'must be a whole number or "auto", got "atuo"; did you mean "auto"?')
    ]


def test_a_union_prefers_the_branch_without_unknown_keys() -> None:
    class A(ConfigModel):
        a: int = 0

    class B(ConfigModel):
        b: int = 0

    class Either(ConfigModel):
        it: A | B

    assert isinstance(Either.validate({"it": {"b": 1}}).it, B)
    assert isinstance(Either.validate({"it": {}}).it, A)


def test_other_annotations() -> None:
    class Kinds(ConfigModel):
        pair: tuple[int, str] = (1, "a")
        many: tuple[str, ...] = ()
        unique: set[str] = field(default_factory=set)
        where: Path = Path(".")
        what: re.Pattern[str] = re.compile("a")
        day: datetime.date | None = None
        from_: str = "here"

    config = Kinds.validate({"pair": [2, "b"], "many": ["x"], "unique": ["u", "u"], "where": "/tmp", "what": "^b$",
                             "day": "2024-01-02", "from": "there"})  # fmt: skip
    assert config.pair == (2, "b") and config.many == ("x",) and config.unique == {"u"}
    assert config.where == Path("/tmp") and config.what.pattern == "^b$" and config.day == datetime.date(2024, 1, 2)
    assert config.from_ == "there"
    assert config.to_wire()["day"] == "2024-01-02" and config.to_wire()["where"] == "/tmp"
    assert [path for path, _ in issues(Kinds, {"pair": [1], "what": "(", "day": "soon", "where": 3})] == [
        "pair",
        "where",
        "what",
        "day",
    ]


def test_annotated_takes_validators_of_the_schema_package_limits_and_predicates() -> None:
    def even(value: int) -> bool:
        return value % 2 == 0

    class Checked(ConfigModel):
        port: Annotated[int, field(min=1, max=65535)] = 80
        ports: list[Annotated[int, field(min=1)]]
        even: Annotated[int, even] = 2
        upper: Annotated[str, schema_package.Use(str.upper)] = "A"
        name: Annotated[str, schema_package.And(str, len, error="must not be empty")] = "n"
        shape: Annotated[dict[str, Any], schema_package.Schema({"x": {"y": int}})] = field(
            default_factory=lambda: {"x": {"y": 1}}
        )

    config = Checked.validate({"upper": "abc"})
    assert config.upper == "ABC" and config.to_wire()["upper"] == "abc"
    assert config.simplify() == {"upper": "abc"}
    found = issues(Checked, {"port": 0, "ports": [1, 0], "even": 3, "name": "", "shape": {"x": {"y": "no"}}})
    assert found == [
        ("port", "must be ≥ 1, got 0"),
        ("ports[1]", "must be ≥ 1, got 0"),
        ("even", "refused by even, got 3"),
        ("name", "must not be empty"),
        ("shape.x.y", "should be of type int"),
    ]


def test_limits_bound_length_of_text_and_lists() -> None:
    class Sized(ConfigModel):
        name: str = field("abc", min=2, max=4, pattern="^[a-z]+$")
        items: list[int] = field(default_factory=lambda: [1], min=1, max=2)
        color: str = field("red", choices=["red", "blue"])

    assert issues(Sized, {"name": "a", "items": [], "color": "bleu"}) == [
        ("name", "must have at least 2 characters"),
        ("items", "must have at least 1 items"),
        ("color", 'must be one of "red", "blue", got "bleu"; did you mean "blue"?'),
    ]
    assert issues(Sized, {"name": "abcde", "items": [1, 2, 3]})[0] == ("name", "must have at most 4 characters")
    assert issues(Sized, {"name": "A1"}) == [("name", 'must match ^[a-z]+$, got "A1"')]


def test_loose_falls_back_and_deprecated_warns() -> None:
    class Odd(ConfigModel):
        count: int = field(3, loose=True)
        old: str = field("", deprecated="use new")

    config = Odd.validate({"count": "many", "old": "x"})
    assert config.count == 3
    assert dict(config.warnings) == {
        "count": 'must be a whole number, got "many"; the default is used',
        "old": "deprecated: use new",
    }


def test_intersection_is_inheritance_and_cross_checks_run_last() -> None:
    class Low(ConfigModel):
        low: int = 0

    class High(ConfigModel):
        high: int = 10

    class Range(Low, High):
        def cross_check(self) -> Iterable[tuple[str, str]]:
            if self.low > self.high:
                yield "low", "must not be above high"

    assert list(Range.fields()) == ["high", "low"]
    assert issues(Range, {"low": 11}) == [("low", "must not be above high")]


def test_instances_are_read_only_and_built_from_attributes() -> None:
    config = Config(greeting="Hi", agents=[Agent(label="a")], level=Level.HIGH)
    assert config.greeting == "Hi" and config.agents[0].label == "a" and config.level is Level.HIGH
    with pytest.raises(AttributeError, match="read-only"):
        config.greeting = "x"
    with pytest.raises(ConfigError, match=r"Config: greting: unknown key; did you mean \"greeting\""):
        Config(greting="x")


def test_live_swap_keeps_the_object_and_tells_watchers() -> None:
    config = Config.validate({})
    seen: list[str] = []
    undo = config.watch(lambda: seen.append(config.greeting))
    config.watch(lambda: 1 / 0)
    nested: list[int] = []
    config.limits.watch(lambda: nested.append(config.limits.timeout_ms))
    new = Config.validate({"greeting": "Hi", "limits": {"timeoutMs": 5}})
    assert config.changed(new) == {"greeting", "limits"} and config.can_swap(new)
    assert config.swap(new) == {"greeting", "limits"}
    assert config.greeting == "Hi" and seen == ["Hi"] and nested == [5]
    undo()
    config.swap(Config.validate({"greeting": "Yo"}))
    assert seen == ["Hi"]


def test_a_change_of_a_field_that_is_not_live_cannot_be_swapped() -> None:
    config = Config.validate({})
    assert not config.can_swap(Config.validate({"greeting": "Hi", "ratio": 0.1}))
    assert not config.can_swap(Config.validate({"limits": {"mode": "slow"}}))
    assert config == Config.validate({"ratio": 0.5}) and not config.changed(Config.validate({}))
    assert Config.validate({"env": {"a": "1"}}) != config


def test_simplify_drops_what_equals_the_default() -> None:
    raw = {"greeting": "Hi", "ratio": 0.5, "limits": {"mode": "slow", "timeoutMs": 1000}, "agents": [{"label": "x"}]}
    assert Config.simplify(Config.validate(raw)) == {
        "greeting": "Hi",
        "limits": {"mode": "slow"},
        "agents": [{"label": "x"}],
    }


def test_json_schema_has_limits_and_metadata() -> None:
    schema = Config.json_schema()
    properties = schema["properties"]
    assert schema["description"] == "What the plugin needs."
    assert properties["maxParallelToolCalls"] == {"type": "integer", "minimum": 1, "default": 10, "x-dsh-live": True}
    assert properties["greeting"]["description"] == "Word before the name"
    assert properties["apiKey"]["x-dsh-secret"] is True
    assert properties["level"] == {"enum": ["low", "high"], "default": "low"}
    assert properties["agents"]["items"]["required"] == ["label"]
    assert properties["limits"]["properties"]["timeoutMs"]["x-dsh-unit"] == "ms"


class Tree(ConfigModel):
    name: str
    children: list[Tree]


def test_a_model_may_contain_itself() -> None:
    tree = Tree.validate({"name": "a", "children": [{"name": "b"}]})
    assert tree.children[0].children == []
    schema = Tree.json_schema()
    assert schema["definitions"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/definitions/Tree"}


def test_bad_declarations_are_named() -> None:
    with pytest.raises(TypeError, match="name the field watch_ instead"):

        class Clash(ConfigModel):
            watch: bool = False

    class Unresolved(ConfigModel):
        x: Missing = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(CordisError, match="annotation cannot be evaluated"):
        Unresolved.fields()


def test_a_raw_schema_works_as_config_with_its_message_cut() -> None:
    declared = schema_package.Schema({"port": int, schema_package.Optional("host"): str})
    assert validate_config(declared, {"port": 1}) == {"port": 1}
    with pytest.raises(ConfigError) as caught:
        validate_config(declared, {"port": "sk-secret"}, where="row")
    assert [tuple(issue) for issue in caught.value.issues] == [("port", "should be of type int")]
    assert "sk-secret" not in str(caught.value) and str(caught.value) == "row: port: should be of type int"
    with pytest.raises(ConfigError, match="unknown key 'prot'"):
        validate_config(declared, {"port": 1, "prot": "sk-secret"})
    assert validate_config(None, 5) == 5
    assert validate_config(Agent, {"label": "x"}).label == "x"
    # The other way round, a model's `validate` serves as a validator of the schema package.
    assert schema_package.Schema({"a": schema_package.Use(Agent.validate)}).validate({"a": {"label": "x"}})


def test_offline_check_accepts_values_that_are_not_known_yet() -> None:
    later = object()
    found, warnings = inspect_config(
        Config,
        {"maxParallelToolCalls": later, "agents": [later, {"maxTokens": later}], "ratio": 3, "grteing": 1},
        lambda value: value is later,
    )
    assert [issue.path for issue in found] == ["ratio", "agents[1].label"]
    assert [warning.nearest for warning in warnings] == ["greeting"]


class Account(ConfigModel):
    name: str
    token: str = field("", secret=True)


class Accounts(ConfigModel):
    accounts: list[Annotated[Account, schema_package.And(lambda account: account.name != "")]]


def test_secrets_below_fields_with_validators_are_redacted() -> None:
    config = Accounts.validate({"accounts": [{"name": "a", "token": "hush"}]})
    assert config.to_wire() == {"accounts": [{"name": "a", "token": "hush"}]}
    assert config.to_wire(redact=True) == {"accounts": [{"name": "a", "token": "***"}]}
    assert config.simplify() == {"accounts": [{"name": "a", "token": "hush"}]}
    assert "hush" not in repr(config)
