"""The expression language: what parses, what it means, what it cannot reach."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsh.cordis import Context, Service
from dsh.loader.expr import UNDEFINED, ExprError, Scope, check_expr, evaluate, resolve_values
from dsh.loader.yamlio import Expr

ENV = {"HOME": "/home/me", "EMPTY": "", "MODE": "fast", "N": "42"}


def scope(**changes: Any) -> Scope:
    options: dict[str, Any] = {
        "env": ENV,
        "cwd": "/srv/here",
        "base_dir": Path("/etc/dsh"),
        "home": lambda *parts: "/".join(("/home/me/.dsh", *parts)),
        "argv": ("python", "dsh"),
    }
    return Scope(**{**options, **changes})


def run(source: str, tag: str = "!!js", **changes: Any) -> Any:
    return evaluate(Expr(source, tag), scope(**changes))


SHIPPED = [
    "process.env.DSH_TELEMETRY_MODE || 'DISABLED'",
    "process.env.DSH_PERMISSION_MODE ?? 'workspace-write'",
    "process.cwd()",
    "process.platform === 'win32'",
    "process.platform !== 'win32'",
    "(process.env.DSH_PERMISSION_MODE ?? 'workspace-write') === 'danger-full-access' ? 'never' : 'ask'",
    "dshHomePath('sessions')",
    "dshHomePath('session-query.sqlite')",
    "process.env.DSH_TOOLS_MODE",
    "new URL('presets/', baseUrl).pathname",
    "new URL('.', baseUrl).href",
    "process.getBuiltinModule('node:url').fileURLToPath(new URL('./skills', baseUrl))",
    "process.getBuiltinModule('node:path').join(process.getBuiltinModule('node:os').homedir(), '.local/bin/x')",
    "process.getBuiltinModule(\"node:path\").join(process.cwd(), 'a', 'b')",
    "ctx.get('cordisInspect') !== void 0",
    "Number(process.env.PORT ?? 3080)",
    "(process.env.RELAYS ?? '').split(',')",
    "process.env.CI ? [] : ['a', 'b']",
    "['app.internal', ...process.argv]",
    "!process.env.DSH_OTEL",
    "JSON.parse(process.env.EXTRA || '{}')",
    "process.env.MODEL?.trim().toLowerCase() ?? 'deepseek-flash'",
    "Math.max(1, parseInt(process.env.N ?? '4', 10))",
]


@pytest.mark.parametrize("source", SHIPPED)
def test_b02a_expressions_of_shipped_files_parse_and_run(source: str) -> None:
    check_expr(Expr(source))
    run(source)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("2 * 3 % 4", 2),
        ("-2 + 5", 3),
        ("- - 2", 2),
        ("7 / 2", 3.5),
        ("6 / 2", 3),
        ("1 < 2 === true", True),
        ("1 + 1 == 2 && 3 > 2", True),
        ("true || false && false", True),
        ("false || null ?? 'x'", "x"),
        ("null ?? false || 'y'", "y"),
        ("true ? 1 : false ? 2 : 3", 1),
        ("false ? 1 : false ? 2 : 3", 3),
        ("'a' if true else 'b'", "a"),
        ("1 if false else 2 if false else 3", 3),
        ("not true or true", True),
        ("not 1 == 2", True),
        ("!1 == 2", False),
        ("None", None),
        ("True and False", False),
        ("typeof undefined", "undefined"),
        ("typeof 'x' + 'y'", "stringy"),
        ("typeof null", "object"),
        ("typeof parseInt", "function"),
        ("'a' + 1", "a1"),
        ("1 + '1'", "11"),
        ("1 + null", 1),
        ("true + true", 2),
        ("'b' > 'a'", True),
        ("'10' < 9", False),
        ("[1, 2,][1]", 2),
        ("['a', ...['b', 'c']].join('-')", "a-b-c"),
        ("'abc'[1] + 'abc'.length", "b3"),
        ("0.1 + 0.2 > 0.3", True),
        ("0x10 + 0b11 + 1_000", 1019),
        ("'\\u0041\\n\\x42'", "A\nB"),
    ],
)
def test_b02b_precedence_and_operators(source: str, value: Any) -> None:
    result = run(source)
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize(
    ("source", "truth"),
    [("[]", True), ("JSON.parse('{}')", True), ("'0'", True), ("''", False), ("0", False), ("null", False),
     ("undefined", False), ("NaN", False), ("-1", True), ("'false'", True)],
)  # fmt: skip
def test_b02c_truthiness(source: str, truth: bool) -> None:
    assert run(f"{source} ? true : false") is truth
    assert run(f"!{source}") is not truth


@pytest.mark.parametrize(
    ("source", "equal"),
    [("1 == 1.0", True), ("1 == '1'", False), ("true == 1", False), ("null == undefined", False), ("'a' == 'a'", True),
     ("[] == []", False), ("NaN == NaN", False), ("null === null", True), ("undefined == undefined", True)],
)  # fmt: skip
def test_b02d_equality_is_strict(source: str, equal: bool) -> None:
    assert run(source) is equal
    assert run(source.replace("===", "==").replace("==", "!==")) is not equal


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("env.HOME", "/home/me"),
        ("process.env.MISSING", UNDEFINED),
        ("env.MISSING?.length.x", UNDEFINED),
        ("env.EMPTY ?? 'x'", ""),
        ("env.EMPTY || 'x'", "x"),
        ("env['MODE']", "fast"),
        ("cwd()", "/srv/here"),
        ("process.cwd()", "/srv/here"),
        ("process.execPath", sys.executable),
        ("process.argv[1]", "dsh"),
        ("platform", "linux" if sys.platform.startswith("linux") else sys.platform),
        ("baseUrl", "file:///etc/dsh/"),
        ("base_dir", "/etc/dsh"),
        ("home('a', 'b')", "/home/me/.dsh/a/b"),
        ("new URL('./x/', baseUrl).pathname", "/etc/dsh/x/"),
        ("new URL('https://h:8080/p?q=1#f').host", "h:8080"),
        ("process.getBuiltinModule('path').resolve('a', '..', 'b')", "/srv/here/b"),
        ("process.getBuiltinModule('node:path').basename('/a/b.txt', '.txt')", "b"),
        ("process.getBuiltinModule('node:path').dirname('/a/b')", "/a"),
        ("process.getBuiltinModule('node:os').homedir()", os.path.expanduser("~")),
        ("process.getBuiltinModule('node:url').pathToFileURL('/a b').href", "file:///a%20b"),
        ("' A b '.trim().toUpperCase()", "A B"),
        ("'a,b'.split(',').concat(['c'], 'd').includes('d')", True),
        ("'x-y-z'.replace('-', '+')", "x+y-z"),
        ("'abcdef'.slice(1, -2)", "bcd"),
        ("'abc'.startsWith('ab') && 'abc'.endsWith('bc')", True),
        ("Number(env.N) + 1", 43),
        ("Number('')", 0),
        ("Number('0x10')", 16),
        ("parseInt('12px')", 12),
        ("parseInt('ff', 16)", 255),
        ("parseFloat('1.5e1x')", 15),
        ("String([1, null, 'a'])", "1,,a"),
        ("String(1.0) + String(true) + String(null)", "1truenull"),
        ("Boolean('x')", True),
        ("JSON.stringify(JSON.parse('{\"a\": [1.0]}'))", '{"a":[1]}'),
        ("Math.round(2.5) + Math.floor(-1.5) + Math.ceil(0.2) + Math.min(3, 1)", 3),
    ],
)
def test_b02e_names_and_functions(source: str, value: Any) -> None:
    assert run(source) == value


def test_numbers_that_are_none() -> None:
    for source in ("Number('x')", "parseInt('x')", "0 / 0", "Math.max(1, NaN)", "undefined + 1"):
        assert math.isnan(run(source))
    assert run("1 / 0") == math.inf


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("__import__('os')", "private"),
        ("''.__class__", "cannot be called|undefined|its value"),
        ("(1).__class__.__mro__", "cannot read"),
        ("nothing", "neither a known name nor a service|not known"),
        ("env.HOME.nope()", "cannot be called"),
        ("'a'.format('b')", "cannot be called"),
        ("process.exit(1)", "cannot be called"),
        ("require('fs')", "not known|neither"),
        ("eval('1')", "not known|neither"),
        ("process.getBuiltinModule('node:fs')", "not available here"),
        ("undefined.x", "cannot read 'x' of undefined"),
        ("null[0]", "cannot read '0' of null"),
        ("JSON.parse('{')", "JSON.parse"),
        ("new Date()", "only `new URL"),
        ("URL('x')", "write `new URL"),
        ("new URL('x')", "no absolute URL"),
        ("home(1)", "must be a string"),
        ("'a'.startsWith()", "startsWith"),
        ("...[1]", "unexpected '...'"),
        ("a = 1", "use === to compare"),
        ("{a: 1}", "objects are not supported"),
        ("`x`", "template strings"),
        ("x => x", "unexpected|===" ),
        ("1 +", "unexpected end"),
        ("(1", "expected '\\)', got the end"),
        ("1 2", "unexpected 2"),
        ("'abc", "does not end"),
        ("a.1", "unexpected|expected"),
        ("lambda: 1", "unexpected 'lambda'"),
        ("3px", "cannot begin with a digit"),
        ("", "unexpected end"),
    ],
)  # fmt: skip
def test_b02f_refused_and_said_why(source: str, says: str) -> None:
    with pytest.raises(ExprError, match=says) as caught:
        value = run(source, ctx=None)
        if value is UNDEFINED:
            raise ExprError("undefined", source)
    assert f"`{source}`" in str(caught.value)


def test_b02g_limits() -> None:
    with pytest.raises(ExprError, match="64 levels"):
        run("(" * 70 + "1" + ")" * 70)
    with pytest.raises(ExprError, match="64 levels"):
        run("!" * 70 + "1")
    with pytest.raises(ExprError, match="64 levels"):
        run("[" * 70 + "]" * 70)
    assert run("(" * 60 + "1" + ")" * 60) == 1
    with pytest.raises(ExprError, match="4096"):
        run("1" + " + 1" * 1500)
    many = SimpleNamespace(items=list(range(4000)))
    with pytest.raises(ExprError, match="10000 steps"):
        run("[...s.items, ...s.items, ...s.items]", ctx=FakeContext({"s": many}))
    with pytest.raises(ExprError, match="grew beyond"):
        source = "'" + "x" * 3000 + "'"
        run(f"s.text.split('').join({source})", ctx=FakeContext({"s": SimpleNamespace(text="y" * 200)}))


def test_env_tag() -> None:
    assert run("HOME", "!env") == "/home/me"
    assert run("MISSING", "!env") is UNDEFINED
    assert run("MISSING?", "!env") is None
    assert run("MISSING:a:b", "!env") == "a:b"
    assert run("MISSING:", "!env") == ""
    assert run("EMPTY:x", "!env") == ""
    with pytest.raises(ExprError, match="NAME"):
        check_expr(Expr("not a name", "!env"))


class FakeContext:
    """As much of a context as a scope uses."""

    def __init__(self, services: Mapping[str, Any]) -> None:
        self._services = services

    def __getitem__(self, name: str) -> Any:
        return self._services[name]

    def get(self, name: str) -> Any:
        return self._services.get(name)


def test_services_are_read_only_by_public_values() -> None:
    class Web(Service, name="web"):
        def __init__(self, ctx: Context, config: Any) -> None:
            self.base_url = "http://x"
            self.options = {"ports": [80, 443]}
            self._secret = "s"

        def stop_all(self) -> None: ...

    web = Web(None, None)  # type: ignore[arg-type]
    ctx: Any = FakeContext({"web": web})
    assert run("ctx.web.baseUrl", ctx=ctx) == run("web.base_url", ctx=ctx) == "http://x"
    assert run("web.options.ports[1] + web.options.ports.length", ctx=ctx) == 445
    assert run("web.missing", ctx=ctx) is UNDEFINED
    assert run("ctx.get('web').baseUrl", ctx=ctx) == "http://x"
    assert run("ctx.get('nope') === undefined", ctx=ctx) is True
    assert run("ctx.get('nope')?.x ?? 1", ctx=ctx) == 1
    for source, says in (
        ("web.stopAll()", "method of a service"),
        ("web.stop_all", "method of a service"),
        ("web._secret", "private"),
        ("web.__dict__", "private"),
        ("ctx._meta", "private"),
        ("ctx.get('_x')", "name of a service"),
    ):
        with pytest.raises(ExprError, match=says):
            run(source, ctx=ctx)


async def test_an_undeclared_service_is_named() -> None:
    async with Context() as root:
        root.provide("thing", SimpleNamespace(x=1))
        seen: list[Any] = []

        def reads(ctx: Context) -> None:
            with pytest.raises(ExprError, match='"thing" is neither a known name nor a service this row declares'):
                evaluate(Expr("ctx.thing.x"), scope(ctx=ctx))
            seen.append(evaluate(Expr("ctx.get('thing').x"), scope(ctx=ctx)))

        await root.plugin(reads)
        assert seen == [1]
        assert evaluate(Expr("thing.x"), scope(ctx=root)) == 1


def test_values_resolve_deeply_and_are_not_scanned_again() -> None:
    value = {
        "keep": 1,
        "gone": Expr("env.MISSING"),
        "list": [Expr("env.MISSING"), Expr("1 + 1"), {"deep": Expr("env.MODE")}],
        "url": Expr("new URL('x', baseUrl)"),
    }
    assert resolve_values(value, scope()) == {
        "keep": 1,
        "list": [None, 2, {"deep": "fast"}],
        "url": "file:///etc/dsh/x",
    }
    assert resolve_values(Expr("env.MISSING"), scope()) is UNDEFINED
    with pytest.raises(ExprError) as caught:
        resolve_values({"a": [0, Expr("nope.x")]}, scope())
    assert caught.value.keys == ("a", 1)  # type: ignore[attr-defined]
    with pytest.raises(ExprError, match="no data"):
        resolve_values(Expr("process"), scope())
    with pytest.raises(ExprError, match="no data"):
        resolve_values(Expr("process.cwd"), scope())
