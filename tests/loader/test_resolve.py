"""From a row's name to a plugin: built-in names in all spellings, files, entry points, modules, and good guesses."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import resolve_plugin
from dsh.loader import names
from dsh.loader import resolve as resolving
from dsh.loader.resolve import PluginImportError, ResolveError, load, resolve


def refused(name: str, base: Path) -> ResolveError:
    with pytest.raises(ResolveError) as caught:
        resolve(name, base)
    return caught.value


def test_carriers_and_old_scopes(tmp_path: Path) -> None:
    for name in ("cordis:group", "@deepseek-ai/cordis-plugin-group", "@cordisjs/plugin-group"):
        assert resolve(name, tmp_path).kind == "group"
    for name in ("cordis:include", "@deepseek-ai/cordis-plugin-include", "@cordisjs/plugin-include"):
        assert resolve(name, tmp_path).kind == "include"
    for name in ("@deepseek-ai/cordis-plugin-timer", "@cordisjs/plugin-timer", "timer"):
        target = resolve(name, tmp_path)
        assert callable(load(target)) and target.module == "dsh.loader.builtin"


def test_b15a_built_in_names_in_all_spellings(tmp_path: Path) -> None:
    modules = {resolve(name, tmp_path).module for name in ("@deepseek-ai/dsh-tools", "dsh-tools", "tools")}
    assert modules == {"dsh.core.tools"}


def test_b15b_a_file_beside_the_config_does_not_shadow_a_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("tools", tmp_path).module == "dsh.core.tools"


def test_b15c_paths(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.py").write_text("def apply(ctx): ...\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from .inner import apply\n")
    (tmp_path / "pack" / "inner.py").write_text("def apply(ctx): ...\n")
    one = resolve("./sub/one.py", tmp_path)
    assert one.path == tmp_path / "sub" / "one.py"
    for name in ("./sub/one", "../" + tmp_path.name + "/sub/one.py", str(tmp_path / "sub" / "one"), "./sub/one.ts",
                 "./sub/one.js", "./sub/one.mjs", (tmp_path / "sub" / "one.py").as_uri()):  # fmt: skip
        assert resolve(name, tmp_path).path == one.path
        assert resolve(name, tmp_path).module == one.module
    pack = load(resolve("./pack", tmp_path))
    assert pack.apply.__module__ == f"{pack.__name__}.inner"
    assert resolve_plugin(pack).name is not None


def test_b15d_scripts_without_a_python_counterpart(tmp_path: Path) -> None:
    (tmp_path / "x.ts").write_text("export {}")
    error = refused("./x.ts", tmp_path)
    assert "this runtime loads Python plugins" in str(error) and "x.py" in str(error)


def test_b15e_siblings_import_each_other_and_the_folder_stays_off_the_path(tmp_path: Path) -> None:
    (tmp_path / "helper_b15.py").write_text("value = 42\n")
    (tmp_path / "user.py").write_text("from .helper_b15 import value\ndef apply(ctx): return value\n")
    before = list(sys.path)
    module = load(resolve("./user.py", tmp_path))
    assert module.value == 42 and sys.path == before
    assert importlib.util.find_spec("helper_b15") is None
    other = tmp_path / "other"
    other.mkdir()
    (other / "user.py").write_text("def apply(ctx): ...\n")
    assert load(resolve("./user.py", other)) is not module


def test_file_names_that_are_no_module_names(tmp_path: Path) -> None:
    (tmp_path / "my-tool.v2.py").write_text("value = 1\n")
    assert load(resolve("./my-tool.v2.py", tmp_path)).value == 1


def test_the_code_is_what_the_file_says_now(tmp_path: Path) -> None:
    path = tmp_path / "quick.py"
    path.write_text("value = 1\n")
    target = resolve("./quick.py", tmp_path)
    assert load(target).value == 1
    path.write_text("value = 2\n")
    del sys.modules[target.module or ""]
    assert load(target).value == 2
    assert not (tmp_path / "__pycache__").exists()


def test_b15f_subpaths_and_unavailable_names(tmp_path: Path) -> None:
    assert names.module_of("@deepseek-ai/dsh-tool-subagent-control/list-agents") == "dsh.delegation.tool_list_agents"
    assert "known, but not available" in str(refused("@deepseek-ai/dsh-api-gateway", tmp_path))
    assert "code-runtime-python" in str(refused("@deepseek-ai/dsh-code-runtime-worker-thread", tmp_path))
    assert "bash-sandbox" in str(refused("@deepseek-ai/dsh-pwsh-sandbox", tmp_path))
    assert "not available" in str(refused("@deepseek-ai/dsh-typert-registry", tmp_path))
    assert resolve("@deepseek-ai/dsh-client-ui-theme", tmp_path).kind == "skipped"
    assert resolve("@deepseek-ai/dsh-ui-theme", tmp_path).kind == "skipped"
    assert resolve("dsh-skill-badge", tmp_path).kind == "skipped"


def test_b15g_a_name_without_its_module_is_known_but_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "PLUGINS", {**names.PLUGINS, "future": "dsh.core.no_such_module"})
    assert str(refused("@deepseek-ai/dsh-future", tmp_path)).endswith("is known, but not built yet")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("@deepseek-ai/dsh-llm-deepsek", "@deepseek-ai/dsh-llm-deepseek"),
        ("dsh-agent_loop", "dsh-agent-loop"),
        ("sesion", "session"),
        ("@deepseek-ai/cordis-plugin-tmer", "@deepseek-ai/cordis-plugin-timer"),
        ("utterly-unlike-anything", None),
    ],
)
def test_b15h_unknown_names_come_with_a_suggestion(tmp_path: Path, name: str, near: str | None) -> None:
    error = refused(name, tmp_path)
    assert error.nearest == near
    assert (f'did you mean "{near}"?' in str(error)) == (near is not None)
    assert "tried built-in names, entry points of dsh.plugins, Python modules" in str(error)


def test_a_missing_file_comes_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "greeter.py").write_text("")
    error = refused("./greter.py", tmp_path)
    assert error.nearest == "./greeter.py" and "did you mean" in str(error)


def test_b15i_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("third-party", "json:decoder", "dsh.plugins"),
        EntryPoint("tools", "json:decoder", "dsh.plugins"),
    ]
    monkeypatch.setattr(resolving, "_entry_points", lambda: iter(points))
    target = resolve("third-party", tmp_path)
    assert (target.module, target.attribute) == ("json", "decoder") and load(target).__name__ == "json.decoder"
    assert resolve("tools", tmp_path).module == "dsh.core.tools"
    assert refused("third-prty", tmp_path).nearest == "third-party"


def test_b15j_modules_and_attributes(tmp_path: Path) -> None:
    assert load(resolve("json.decoder", tmp_path)).__name__ == "json.decoder"
    assert load(resolve("json:JSONDecoder.decode", tmp_path)).__name__ == "decode"
    with pytest.raises(PluginImportError, match="has no nope"):
        load(resolve("json:nope", tmp_path))


@pytest.mark.parametrize(
    ("source", "says", "line"),
    [
        ("import os\ndef apply(ctx:\n", "SyntaxError", 2),
        ("\n\nraise ValueError('at import')\n", "ValueError: at import", 3),
        ("import no_such_module_x\n", "ModuleNotFoundError: No module named 'no_such_module_x'", 1),
        ("raise SystemExit\n", "SystemExit", 1),
    ],
)
def test_import_errors_name_the_line_of_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, says: str, line: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(source)
    with pytest.raises(PluginImportError) as caught:
        load(resolve("./bad.py", tmp_path))
    assert str(caught.value).startswith(f"bad.py:{line}: {says.split(':')[0]}") and says in str(caught.value)
    assert caught.value.line == line and caught.value.__cause__ is not None


BUILT = sorted(
    short for short, module in names.PLUGINS.items() if importlib.util.find_spec(module.rpartition(".")[0]) is not None
    and importlib.util.find_spec(module) is not None
)  # fmt: skip


@pytest.mark.parametrize("short", BUILT)
def test_every_built_plugin_of_the_table_is_a_plugin(short: str, tmp_path: Path) -> None:
    plugin: Any = load(resolve(f"@deepseek-ai/dsh-{short}", tmp_path))
    resolve_plugin(plugin)


def test_the_table_imports_nothing() -> None:
    source = Path(names.__file__).read_text()
    lines = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert lines == [
        "from __future__ import annotations",
        "from collections.abc import Iterator, Mapping",
        "from typing import Final",
    ]
