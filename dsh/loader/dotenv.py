"""``.env`` files: a small parser and the list of names such a file may not set.

Grammar: ``NAME=value`` with an optional ``export``, ``#`` comments, single quotes literal, double quotes with the
escapes ``\\n \\r \\t \\" \\\\ \\$``, quoted values over several lines, the last assignment of a name wins. Nothing is
interpolated: a value is data.
"""

from __future__ import annotations

import re

from dsh.cordis.records import record

_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.\-]*)[ \t]*=[ \t]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'")

# Names that decide which code runs, which files are trusted or where traffic goes. A file found in a project
# folder must not set them: the person who starts dsh there may never have read it.
_REFUSED_PREFIXES = (
    "DSH_", "XDG_", "DYLD_", "BASH_FUNC_", "LD_", "PYTHON", "NODE_", "NPM_CONFIG_", "GIT_CONFIG", "GIT_SSL_",
)  # fmt: skip
_REFUSED_WORDS = """
    PATH PATHEXT HOME USERPROFILE HOMEDRIVE HOMEPATH APPDATA LOCALAPPDATA SHELL COMSPEC SYSTEMROOT WINDIR
    BASH_ENV ENV ZDOTDIR SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 IFS CDPATH GLOBIGNORE FPATH
    PERL5LIB PERL5OPT PERL5DB PERLLIB RUBYOPT RUBYLIB LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR
    JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS _JAVA_OPTIONS CLASSPATH DOTNET_STARTUP_HOOKS R_PROFILE R_PROFILE_USER R_ENVIRON
    GCONV_PATH OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES
    GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_ASKPASS GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_EXTERNAL_DIFF
    GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE
    GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ATTR_SOURCE GIT_ALLOW_PROTOCOL
    SSH_ASKPASS SUDO_ASKPASS
    EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY FTP_PROXY WS_PROXY WSS_PROXY SOCKS_PROXY
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE SSLKEYLOGFILE
    DEEPSEEK_BASE_URL DEEPSEEK_SEARCH_BASE_URL
"""
_REFUSED_NAMES = frozenset(_REFUSED_WORDS.split())


@record
class Dotenv:
    """A parsed file: the assignments, and the numbers of the lines that are no assignment."""

    values: dict[str, str]
    bad_lines: tuple[int, ...]


def parse_dotenv(text: str) -> Dotenv:
    """Parse the text of a ``.env`` file. Lines that are no assignment are skipped and counted, never raised."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    values: dict[str, str] = {}
    bad: list[int] = []
    at = 0
    while at < len(text):
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end
        line = text[at:line_end]
        if not line.strip() or line.lstrip().startswith("#"):
            at = line_end + 1
            continue
        assignment = _ASSIGNMENT.match(text, at, line_end)
        value_end, value = (line_end, None) if assignment is None else _value(text, assignment.end(), line_end)
        if assignment is None or value is None:
            bad.append(text.count("\n", 0, at) + 1)
        else:
            values[assignment.group(1)] = value
        at = value_end + 1
    return Dotenv(values, tuple(bad))


def _value(text: str, start: int, line_end: int) -> tuple[int, str | None]:
    """Where the line of the value ends, and the value (None: an unfinished or overfull quote)."""
    quote = text[start : start + 1]
    if quote not in ("'", '"'):
        plain = text[start:line_end]
        comment = re.search(r"(?:^|[ \t])#", plain)
        return line_end, (plain[: comment.start()] if comment else plain).strip()
    quoted = (_DOUBLE if quote == '"' else _SINGLE).match(text, start)
    if quoted is None:
        return line_end, None
    end = text.find("\n", quoted.end())
    end = len(text) if end < 0 else end
    rest = text[quoted.end() : end].strip()
    if rest and not rest.startswith("#"):
        return line_end, None
    body = quoted.group(1)
    if quote == '"':
        body = _ESCAPE.sub(lambda match: _ESCAPES.get(match.group(1), match.group(0)), body)
    return end, body


def refused_name(name: str) -> bool:
    """Whether a ``.env`` file may not set `name` (compared without regard to case)."""
    upper = name.upper()
    return upper in _REFUSED_NAMES or upper.startswith(_REFUSED_PREFIXES)
