"""The expression language of config files: a small subset of JavaScript, with Python spellings, and no `eval`.

    port: !!js ctx.webStartup.port ?? 3080
    root: !expr home('sessions') if env.KEEP else null

An expression is parsed once and run against a `Scope`. It can read the launch environment, the
services its row declares, and call the functions of `expr_names`; nothing else is reachable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from dsh.cordis.errors import HarnessError, describe_error

from .expr_names import CONTEXT_PLACES, Scope
from .expr_values import (
    UNDEFINED,
    Fn,
    Url,
    add,
    compare,
    divide,
    member,
    number,
    remainder,
    strict_equal,
    tidy,
    truthy,
    type_name,
)
from .yamlio import Expr

__all__ = ["UNDEFINED", "ExprError", "Scope", "check_expr", "evaluate", "resolve_values", "truthy"]

MAX_SOURCE: Final = 4096
MAX_DEPTH: Final = 64
MAX_STEPS: Final = 10_000


class ExprError(HarnessError):
    """An expression that cannot be read or run; the message quotes it."""

    code = "BAD_EXPRESSION"

    def __init__(self, reason: str, source: str) -> None:
        shown = source if len(source) <= 200 else source[:197] + "..."
        super().__init__(f"expression `{shown}`: {reason}")
        self.reason = reason
        self.source = source


class _Token(NamedTuple):
    kind: str  # number, string, name, mark, end
    value: Any
    at: int


_TOKEN: Final = re.compile(
    r"""(?P<number>0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    |(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<mark>\.\.\.|===|!==|\?\?|\?\.(?![0-9])|&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]])
    |(?P<end>$)""",
    re.VERBOSE | re.DOTALL,
)
_SPACE: Final = re.compile(r"\s*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_UNEXPECTED: Final = {
    "`": " (template strings are not supported)",
    "{": " (objects are not supported)",
    "=": " (use === to compare)",
}


def _tokens(source: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while True:
        space = _SPACE.match(source, at)
        at = space.end() if space else at
        match = _TOKEN.match(source, at)
        if match is None:
            head = source[at]
            said = "the string does not end" if head in "'\"" else f"unexpected {head!r}{_UNEXPECTED.get(head, '')}"
            raise _Unreadable(said, at)
        kind, value = str(match.lastgroup), match[0]
        if kind == "number":
            if (after := source[match.end() : match.end() + 1]).isalpha() or after in ("_", "$"):
                raise _Unreadable("a name cannot begin with a digit", match.end())
            found.append(_Token(kind, _number(value), at))
        elif kind == "string":
            found.append(_Token(kind, _ESCAPE.sub(partial(_unescaped, at), value[1:-1]), at))
        else:
            found.append(_Token(kind, value, at))
        if kind == "end":
            return found
        at = match.end()


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower())
    return int(digits[2:], base) if base else int(digits) if digits.isdigit() else tidy(float(digits))


def _unescaped(at: int, escape: re.Match[str]) -> str:
    code, letter = escape[1] or escape[2], escape[3]
    if code:
        return chr(int(code, 16))
    if letter in ("u", "x"):
        raise _Unreadable(f"\\{letter} needs {4 if letter == 'u' else 2} hex digits", at)
    return _ESCAPES.get(letter, letter)


class _Unreadable(Exception):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"{reason} at character {at + 1}")


Node: TypeAlias = tuple[Any, ...]
"""`(kind, parts…)`; see `_Run.value` for the kinds."""

_CONSTANTS: Final[Mapping[str, Any]] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "null": None,
    "None": None,
    "undefined": UNDEFINED,
    "NaN": float("nan"),
    "Infinity": float("inf"),
}
_RESERVED: Final = frozenset({"and", "or", "not", "if", "else", "typeof", "new", "void", "in", "is", "lambda", "for"})
_NOT_LEVEL: Final = 3
_BINARY: Final[Mapping[str, tuple[int, str]]] = {
    operator: (level, operators[operator])
    for level, operators in enumerate(
        (
            {"??": "??"},
            {"||": "||", "or": "||"},
            {"&&": "&&", "and": "&&"},
            {},  # `not`, a prefix: looser than comparisons, tighter than `and`
            {"===": "==", "==": "==", "!==": "!=", "!=": "!="},
            {"<": "<", ">": ">", "<=": "<=", ">=": ">="},
            {"+": "+", "-": "-"},
            {"*": "*", "/": "/", "%": "%"},
        )
    )
    for operator in operators
}
"""Binary operators with their precedence (0 is loosest) and the operation they mean."""


class _Parser:
    """Precedence climbing over `_BINARY`, inside `?:` and `if else`, around unary operators and member chains."""

    def __init__(self, source: str) -> None:
        self._tokens = _tokens(source)
        self._next = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._conditional()
        token = self._tokens[self._next]
        if token.kind != "end":
            raise _Unreadable(f"unexpected {token.value!r}", token.at)
        return node

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, *values: str) -> str | None:
        token = self._tokens[self._next]
        if token.kind in ("mark", "name") and token.value in values:
            self._next += 1
            return str(token.value)
        return None

    def _expect(self, value: str, wanted: str = "") -> None:
        token = self._tokens[self._next]
        if self._accept(value) is None:
            wanted = wanted or repr(value)
            seen = "the end" if token.kind == "end" else repr(token.value)
            raise _Unreadable(f"expected {wanted}, got {seen}", token.at)

    def _deeper(self, parse: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Unreadable(f"nested more than {MAX_DEPTH} levels deep", self._tokens[self._next].at)
        result = parse()
        self._depth -= 1
        return result

    def _conditional(self) -> Node:
        return self._deeper(self._conditional_here)  # type: ignore[no-any-return]

    def _conditional_here(self) -> Node:
        first = self._binary(0)
        if self._accept("?"):
            then = self._conditional()
            self._expect(":")
            return "choose", first, then, self._conditional()
        if self._accept("if"):
            condition = self._binary(0)
            self._expect("else")
            return "choose", condition, first, self._conditional()
        return first

    def _binary(self, loosest: int) -> Node:
        """Operators that bind as tight as `loosest` or tighter."""
        if loosest <= _NOT_LEVEL and self._accept("not"):
            left: Node = ("unary", "!", self._deeper(lambda: self._binary(_NOT_LEVEL)))
        else:
            left = self._unary()
        while True:
            token = self._tokens[self._next]
            level, operation = _BINARY.get(token.value, (-1, "")) if token.kind in ("mark", "name") else (-1, "")
            if level < loosest:
                return left
            self._next += 1
            left = "binary", operation, left, self._binary(level + 1)

    def _unary(self) -> Node:
        operator = self._accept("!", "-", "+", "typeof", "void")
        return self._chain() if operator is None else ("unary", operator, self._deeper(self._unary))

    def _chain(self) -> Node:
        """Members and calls. `?.` ends the whole chain where its left side is nothing."""
        node = self._new() if self._accept("new") else self._primary()
        chained = False
        while mark := self._accept(".", "?.", "[", "("):
            optional = mark == "?."
            chained = chained or optional
            if optional:
                mark = self._accept("[", "(") or "."
            if mark == ".":
                token = self._take()
                if token.kind != "name":
                    raise _Unreadable("expected a name after '.'", token.at)
                node = "member", node, ("constant", token.value), optional
            elif mark == "[":
                node = "member", node, self._until("]"), optional
            else:
                node = "call", node, self._items(")"), optional
        return ("chain", node) if chained else node

    def _new(self) -> Node:
        token = self._take()
        if token.value != "URL":
            raise _Unreadable("only `new URL(path, base)` can be made", token.at)
        self._expect("(")
        return "url", self._items(")")

    def _until(self, end: str) -> Node:
        node = self._conditional()
        self._expect(end)
        return node

    def _items(self, end: str) -> tuple[tuple[bool, Node], ...]:
        """The items up to `end`, of a call or a list, each with whether `...` spreads it."""
        items: list[tuple[bool, Node]] = []
        while self._accept(end) is None:
            if items:
                self._expect(",", f"',' or {end!r}")
                if self._accept(end):
                    break
            items.append((self._accept("...") is not None, self._conditional()))
        return tuple(items)

    def _primary(self) -> Node:
        token = self._take()
        if token.kind in ("number", "string"):
            return "constant", token.value
        if token.kind == "name" and token.value in _CONSTANTS:
            return "constant", _CONSTANTS[token.value]
        if token.kind == "name" and token.value not in _RESERVED:
            return "name", token.value
        if token.value == "(":
            return self._until(")")
        if token.value == "[":
            return "list", self._deeper(lambda: self._items("]"))
        raise _Unreadable("unexpected end" if token.kind == "end" else f"unexpected {token.value!r}", token.at)


class _SkipChain(Exception):
    """`?.` met null or undefined: the rest of the member chain is undefined."""


_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": strict_equal,
    "!=": lambda a, b: not strict_equal(a, b),
    "<": lambda a, b: compare(a, b, lambda x, y: x < y),
    ">": lambda a, b: compare(a, b, lambda x, y: x > y),
    "<=": lambda a, b: compare(a, b, lambda x, y: x <= y),
    ">=": lambda a, b: compare(a, b, lambda x, y: x >= y),
    "+": add,
    "-": lambda a, b: tidy(number(a) - number(b)),
    "*": lambda a, b: tidy(number(a) * number(b)),
    "/": divide,
    "%": remainder,
}
_UNARY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "!": lambda value: not truthy(value),
    "-": lambda value: tidy(-number(value)),
    "+": number,
    "typeof": type_name,
    "void": lambda value: UNDEFINED,
}


class _Run:
    """One evaluation: what names mean, and how many steps are left."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._left = MAX_STEPS

    def _step(self, count: int = 1) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(f"it takes more than {MAX_STEPS} steps")

    def value(self, node: Node) -> Any:
        """The value of a node."""
        self._step()
        match node:
            case ("constant", value):
                return value
            case ("name", name):
                return self._scope.lookup(name)
            case ("list", items):
                return self._values(items)
            case ("env", name, missing):
                return self._scope.env.get(name, missing)
            case ("choose", condition, then, otherwise):
                return self.value(then if truthy(self.value(condition)) else otherwise)
            case ("unary", operator, operand):
                return _UNARY[operator](self.value(operand))
            case ("binary", operator, left, right):
                return self._binary(operator, self.value(left), right)
            case ("member", target, key, optional):
                return member(self._target(target, optional), self.value(key))
            case ("call", target, items, optional):
                function = self._target(target, optional)
                if not isinstance(function, Fn):
                    raise ValueError(f"{type_name(function)} cannot be called")
                return function.call(self._values(items), self._step)
            case ("chain", inner):
                try:
                    return self.value(inner)
                except _SkipChain:
                    return UNDEFINED
            case (_, items):
                return Url.make(*self._values(items))

    def _binary(self, operator: str, left: Any, right: Node) -> Any:
        if operator == "??":
            return self.value(right) if left is None or left is UNDEFINED else left
        if operator == "||":
            return left if truthy(left) else self.value(right)
        if operator == "&&":
            return self.value(right) if truthy(left) else left
        return _OPERATIONS[operator](left, self.value(right))

    def _target(self, node: Node, optional: bool) -> Any:
        value = self.value(node)
        if optional and (value is None or value is UNDEFINED):
            raise _SkipChain
        return value

    def _values(self, items: tuple[tuple[bool, Node], ...]) -> list[Any]:
        found: list[Any] = []
        for spread, node in items:
            value = self.value(node)
            if not spread:
                found.append(value)
            elif isinstance(value, (list, tuple)):
                self._step(len(value))
                found.extend(value)
            else:
                raise ValueError(f"... needs a list, not {type_name(value)}")
        return found


_ENV = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(\?)|:(.*))?", re.S)


def _env_node(source: str) -> Node:
    match = _ENV.fullmatch(source)
    if match is None:
        raise _Unreadable("!env takes NAME, NAME? or NAME:default", 0)
    name, nullable, default = match[1], match[2], match[3]
    return "env", name, None if nullable else UNDEFINED if default is None else default


@lru_cache(maxsize=1024)
def _compile(source: str, tag: str) -> Node:
    if len(source) > MAX_SOURCE:
        raise ExprError(f"longer than {MAX_SOURCE} characters", source)
    try:
        return _env_node(source) if tag == "!env" else _Parser(source).parse()
    except _Unreadable as error:
        raise ExprError(str(error), source) from None
    except RecursionError:
        raise ExprError("nested too deeply", source) from None


def check_expr(expr: Expr) -> None:
    """Raise `ExprError` if the expression cannot be parsed."""
    _compile(expr.source, expr.tag)


def names_read(expr: Expr) -> dict[str, bool]:
    """The names an expression reads, services behind `ctx.` included; true for those that it reads in any case.

    Raises `ExprError` if it cannot be parsed.
    """
    found: dict[str, bool] = {}

    def visit(node: Any, always: bool) -> None:
        match node:
            case ("constant" | "env", *_):
                pass
            case ("name", name):
                found[name] = found.get(name, False) or always
            case ("member", ("name", "ctx"), ("constant", str(name)), _) if name not in ("get", *CONTEXT_PLACES):
                found[name] = found.get(name, False) or always
            case ("choose", condition, *branches):
                visit(condition, always)
                visit(branches, False)
            case ("binary", "??" | "||" | "&&", left, right):
                visit(left, always)
                visit(right, False)
            case ("chain", inner):
                visit(inner, False)
            case tuple() | list():
                for each in node:
                    visit(each, always)

    visit(_compile(expr.source, expr.tag), True)
    return found


def evaluate(expr: Expr, scope: Scope) -> Any:
    """The value of an expression; `UNDEFINED` if it has none. Raises `ExprError`, quoting the source."""
    node = _compile(expr.source, expr.tag)
    try:
        return _Run(scope).value(node)
    except ExprError:
        raise
    except Exception as error:
        raise ExprError(describe_error(error), expr.source) from error


def resolve_values(value: Any, scope: Scope, keys: tuple[str | int, ...] = ()) -> Any:
    """`value` as plain data with every expression evaluated; results are not scanned again.

    An undefined value leaves its key out of a mapping and is null in a list; at the top it is `UNDEFINED`.
    Raises `ExprError` with `keys` set to the path of the expression.
    """
    if isinstance(value, Expr):
        try:
            result = evaluate(value, scope)
            if isinstance(result, Url):
                return str(result)
            if isinstance(result, Fn) or getattr(type(result), "__expr_facade__", False):
                raise ExprError("its value is no data", value.source)
            return result
        except ExprError as error:
            error.keys = keys  # type: ignore[attr-defined]
            raise
    if isinstance(value, Mapping):
        resolved = {key: resolve_values(item, scope, (*keys, key)) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not UNDEFINED}
    if isinstance(value, list):
        items = [resolve_values(item, scope, (*keys, index)) for index, item in enumerate(value)]
        return [None if item is UNDEFINED else item for item in items]
    return value
