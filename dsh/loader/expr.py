"""The expression language of config files: a small subset of JavaScript, with Python spellings, and no `eval`.

    port: !!js ctx.webStartup.port ?? 3080
    root: !expr home('sessions') if env.KEEP else null

An expression is parsed once into nested functions and run against a `Scope`. It can read the launch environment, the
services its row declares, and call the functions of `expr_values`; nothing else is reachable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from dsh.cordis.errors import HarnessError, describe_error

from .expr_values import (
    UNDEFINED,
    Fn,
    Scope,
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


class _Run:
    """One evaluation: what names mean, and how many steps are left."""

    __slots__ = ("left", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.left = MAX_STEPS

    def step(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"it takes more than {MAX_STEPS} steps")


Node: TypeAlias = Callable[[_Run], Any]


class _SkipChain(Exception):
    """`?.` met null or undefined: the rest of the member chain is undefined."""


# --- tokens ---------------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str  # number, string, name, mark, end
    value: Any
    at: int


_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
)
_NAME = re.compile(r"[A-Za-z_$][\w$]*")
_MARK = re.compile(r"\.\.\.|===|!==|\?\?|\?\.(?![0-9])|&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]]")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}


def _tokens(source: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while True:
        space = _SPACE.match(source, at)
        at = space.end() if space else at
        if at >= len(source):
            found.append(_Token("end", None, at))
            return found
        head = source[at]
        if head in "'\"":
            text, end = _string(source, at)
            found.append(_Token("string", text, at))
            at = end
            continue
        number_match = _NUMBER.match(source, at)
        if number_match and number_match[0] != ".":
            found.append(_Token("number", _number(number_match[0]), at))
            at = number_match.end()
            if _NAME.match(source, at):
                raise _Unreadable("a name cannot begin with a digit", at)
            continue
        name = _NAME.match(source, at)
        mark = None if name else _MARK.match(source, at)
        match = name or mark
        if match is None:
            hint = " (template strings are not supported)" if head == "`" else ""
            hint = hint or (" (objects are not supported)" if head == "{" else "")
            hint = hint or (" (use === to compare)" if head == "=" else "")
            raise _Unreadable(f"unexpected {head!r}{hint}", at)
        found.append(_Token("name" if name else "mark", match[0], at))
        at = match.end()


def _number(text: str) -> int | float:
    digits = text.replace("_", "")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower())
    if base:
        return int(digits[2:], base)
    if digits.isdigit():
        return int(digits)
    value = float(digits)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _string(source: str, at: int) -> tuple[str, int]:
    quote, start = source[at], at
    parts: list[str] = []
    at += 1
    while at < len(source):
        char = source[at]
        if char == quote:
            return "".join(parts), at + 1
        if char != "\\":
            parts.append(char)
            at += 1
            continue
        letter = source[at + 1 : at + 2]
        size = {"u": 4, "x": 2}.get(letter)
        if size:
            digits = source[at + 2 : at + 2 + size]
            if not re.fullmatch(rf"[0-9a-fA-F]{{{size}}}", digits):
                raise _Unreadable(f"\\{letter} needs {size} hex digits", at)
            parts.append(chr(int(digits, 16)))
            at += 2 + size
        else:
            parts.append(_ESCAPES.get(letter, letter))
            at += 2
    raise _Unreadable("the string does not end", start)


class _Unreadable(Exception):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(f"{reason} at character {at + 1}")


# --- parser ---------------------------------------------------------------------------------------------------------

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
_COMPARISONS: Final = ("<", ">", "<=", ">=")


class _Parser:
    """Operator precedence, loosest first: `?:` and `if else`, `??`, `||`, `&&`, `not`, equality, order, sums, products,
    unary, members and calls."""

    def __init__(self, source: str) -> None:
        self._tokens = _tokens(source)
        self._next = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._conditional()
        token = self._peek()
        if token.kind != "end":
            raise _Unreadable(f"unexpected {token.value!r}", token.at)
        return node

    # --- token helpers

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _accept(self, *values: str) -> str | None:
        token = self._peek()
        if token.kind in ("mark", "name") and token.value in values:
            self._next += 1
            return str(token.value)
        return None

    def _expect(self, value: str) -> None:
        token = self._peek()
        if self._accept(value) is None:
            seen = "the end" if token.kind == "end" else repr(token.value)
            raise _Unreadable(f"expected {value!r}, got {seen}", token.at)

    # --- operators

    def _conditional(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Unreadable(f"nested more than {MAX_DEPTH} levels deep", self._peek().at)
        try:
            first = self._nullish()
            if self._accept("?"):
                then = self._conditional()
                self._expect(":")
                return _choose(first, then, self._conditional())
            if self._accept("if"):
                condition = self._nullish()
                self._expect("else")
                return _choose(condition, first, self._conditional())
            return first
        finally:
            self._depth -= 1

    def _nullish(self) -> Node:
        left = self._or()
        while self._accept("??"):
            left = _nullish(left, self._or())
        return left

    def _or(self) -> Node:
        left = self._and()
        while self._accept("||", "or"):
            left = _either(left, self._and())
        return left

    def _and(self) -> Node:
        left = self._not()
        while self._accept("&&", "and"):
            left = _both(left, self._not())
        return left

    def _not(self) -> Node:
        if self._accept("not"):
            return _negate(_deeper(self, self._not))
        return self._equality()

    def _equality(self) -> Node:
        left = self._order()
        while operator := self._accept("===", "!==", "==", "!="):
            left = _equality(left, self._order(), operator.startswith("="))
        return left

    def _order(self) -> Node:
        left = self._sum()
        while operator := self._accept(*_COMPARISONS):
            left = _binary(left, self._sum(), _ORDERS[operator])
        return left

    def _sum(self) -> Node:
        left = self._product()
        while operator := self._accept("+", "-"):
            left = _binary(left, self._product(), add if operator == "+" else _subtract)
        return left

    def _product(self) -> Node:
        left = self._unary()
        while operator := self._accept("*", "/", "%"):
            left = _binary(left, self._unary(), _PRODUCTS[operator])
        return left

    def _unary(self) -> Node:
        operator = self._accept("!", "-", "+", "typeof", "void")
        if operator is None:
            return self._chain()
        operand = _deeper(self, self._unary)
        if operator == "!":
            return _negate(operand)
        return _unary(operand, _UNARY[operator])

    # --- members and calls

    def _chain(self) -> Node:
        if self._accept("new"):
            node = self._new()
        else:
            node = self._primary()
        optional = False
        while True:
            if self._accept("."):
                node = _member(node, self._member_name(), False)
            elif self._accept("?."):
                optional = True
                if self._accept("["):
                    node = _index(node, self._until("]"), True)
                elif self._accept("("):
                    node = _call(node, self._arguments(")"), True)
                else:
                    node = _member(node, self._member_name(), True)
            elif self._accept("["):
                node = _index(node, self._until("]"), False)
            elif self._accept("("):
                node = _call(node, self._arguments(")"), False)
            else:
                return _optional_chain(node) if optional else node

    def _new(self) -> Node:
        token = self._take()
        if token.value != "URL":
            raise _Unreadable("only `new URL(path, base)` can be made", token.at)
        self._expect("(")
        arguments = self._arguments(")")

        def make(run: _Run) -> Any:
            run.step()
            return Url.make(*arguments(run))

        return make

    def _member_name(self) -> str:
        token = self._take()
        if token.kind != "name":
            raise _Unreadable("expected a name after '.'", token.at)
        return str(token.value)

    def _until(self, end: str) -> Node:
        node = self._conditional()
        self._expect(end)
        return node

    def _arguments(self, end: str) -> Callable[[_Run], list[Any]]:
        """The items up to `end`, of a call or a list; `...x` spreads a list."""
        items: list[tuple[bool, Node]] = []
        while self._accept(end) is None:
            if items:
                self._expect(",")
                if self._accept(end):
                    break
            spread = self._accept("...") is not None
            items.append((spread, self._conditional()))

        def values(run: _Run) -> list[Any]:
            found: list[Any] = []
            for spread, node in items:
                value = node(run)
                if not spread:
                    found.append(value)
                elif isinstance(value, (list, tuple)):
                    run.step(len(value))
                    found.extend(value)
                else:
                    raise ValueError(f"... needs a list, not {type_name(value)}")
            return found

        return values

    def _primary(self) -> Node:
        token = self._take()
        if token.kind in ("number", "string"):
            return _constant(token.value)
        if token.kind == "name":
            name = str(token.value)
            if name in _CONSTANTS:
                return _constant(_CONSTANTS[name])
            if name in _RESERVED:
                raise _Unreadable(f"unexpected {name!r}", token.at)
            return _name(name)
        if token.value == "(":
            return self._until(")")
        if token.value == "[":
            return _list(_deeper(self, lambda: self._arguments("]")))
        raise _Unreadable("unexpected end" if token.kind == "end" else f"unexpected {token.value!r}", token.at)


def _deeper(parser: _Parser, parse: Callable[[], Any]) -> Any:
    parser._depth += 1
    if parser._depth > MAX_DEPTH:
        raise _Unreadable(f"nested more than {MAX_DEPTH} levels deep", parser._peek().at)
    try:
        return parse()
    finally:
        parser._depth -= 1


# --- nodes ----------------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Node:
    def run_constant(run: _Run) -> Any:
        run.step()
        return value

    return run_constant


def _name(name: str) -> Node:
    def run_name(run: _Run) -> Any:
        run.step()
        return run.scope.lookup(name)

    return run_name


def _list(items: Callable[[_Run], list[Any]]) -> Node:
    def run_list(run: _Run) -> Any:
        run.step()
        return items(run)

    return run_list


def _choose(condition: Node, then: Node, otherwise: Node) -> Node:
    return lambda run: then(run) if truthy(condition(run)) else otherwise(run)


def _nullish(left: Node, right: Node) -> Node:
    def run_nullish(run: _Run) -> Any:
        value = left(run)
        return right(run) if value is None or value is UNDEFINED else value

    return run_nullish


def _either(left: Node, right: Node) -> Node:
    def run_either(run: _Run) -> Any:
        value = left(run)
        return value if truthy(value) else right(run)

    return run_either


def _both(left: Node, right: Node) -> Node:
    def run_both(run: _Run) -> Any:
        value = left(run)
        return right(run) if truthy(value) else value

    return run_both


def _negate(operand: Node) -> Node:
    return lambda run: not truthy(operand(run))


def _equality(left: Node, right: Node, wanted: bool) -> Node:
    return lambda run: strict_equal(left(run), right(run)) is wanted


def _binary(left: Node, right: Node, operation: Callable[[Any, Any], Any]) -> Node:
    def run_binary(run: _Run) -> Any:
        run.step()
        return operation(left(run), right(run))

    return run_binary


def _unary(operand: Node, operation: Callable[[Any], Any]) -> Node:
    return lambda run: operation(operand(run))


def _member(target: Node, name: str, optional: bool) -> Node:
    def run_member(run: _Run) -> Any:
        run.step()
        value = target(run)
        if optional and (value is None or value is UNDEFINED):
            raise _SkipChain
        return member(value, name)

    return run_member


def _index(target: Node, key: Node, optional: bool) -> Node:
    def run_index(run: _Run) -> Any:
        run.step()
        value = target(run)
        if optional and (value is None or value is UNDEFINED):
            raise _SkipChain
        return member(value, key(run))

    return run_index


def _call(target: Node, arguments: Callable[[_Run], list[Any]], optional: bool) -> Node:
    def run_call(run: _Run) -> Any:
        run.step()
        function = target(run)
        if optional and (function is None or function is UNDEFINED):
            raise _SkipChain
        if not isinstance(function, Fn):
            raise ValueError(f"{type_name(function)} cannot be called")
        return function.call(arguments(run), run.step)

    return run_call


def _optional_chain(node: Node) -> Node:
    def run_chain(run: _Run) -> Any:
        try:
            return node(run)
        except _SkipChain:
            return UNDEFINED

    return run_chain


def _subtract(left: Any, right: Any) -> Any:
    return tidy(number(left) - number(right))


_ORDERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": lambda a, b: compare(a, b, lambda x, y: x < y),
    ">": lambda a, b: compare(a, b, lambda x, y: x > y),
    "<=": lambda a, b: compare(a, b, lambda x, y: x <= y),
    ">=": lambda a, b: compare(a, b, lambda x, y: x >= y),
}
_PRODUCTS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "*": lambda a, b: tidy(number(a) * number(b)),
    "/": divide,
    "%": remainder,
}
_UNARY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "-": lambda value: tidy(-number(value)),
    "+": number,
    "typeof": type_name,
    "void": lambda value: UNDEFINED,
}


# --- entry points ---------------------------------------------------------------------------------------------------

_ENV = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(\?)|:(.*))?", re.S)


def _env_node(source: str) -> Node:
    match = _ENV.fullmatch(source)
    if match is None:
        raise _Unreadable("!env takes NAME, NAME? or NAME:default", 0)
    name, nullable, default = match[1], match[2], match[3]
    missing: Any = None if nullable else UNDEFINED if default is None else default
    return lambda run: run.scope.env.get(name, missing)


@lru_cache(maxsize=1024)
def _compile(source: str, tag: str) -> Node:
    if len(source) > MAX_SOURCE:
        raise ExprError(f"longer than {MAX_SOURCE} characters", source)
    try:
        return _env_node(source) if tag == "!env" else _Parser(source).parse()
    except _Unreadable as error:
        raise ExprError(str(error), source) from None


def check_expr(expr: Expr) -> None:
    """Raise `ExprError` if the expression cannot be parsed."""
    _compile(expr.source, expr.tag)


def evaluate(expr: Expr, scope: Scope) -> Any:
    """The value of an expression; `UNDEFINED` if it has none. Raises `ExprError`, quoting the source."""
    node = _compile(expr.source, expr.tag)
    try:
        return node(_Run(scope))
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
