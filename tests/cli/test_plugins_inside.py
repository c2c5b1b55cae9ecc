"""`dsh plugins list|info|graph`: which plugins there are, what each declares, who provides what to whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.compositions import SPINE
from tests.cli.kit import Place

GREETER = '''\
"""Greets. And says more in a second sentence."""

from dsh.cordis import ConfigModel, Context, Emit, Service, field
from dsh.core.tools import Tools
from dsh.core.tool_events import ToolsResult


class Greeted(Emit, name="greeter/greeted"):
    who: str


class Config(ConfigModel):
    greeting: str = field("Hello", live=True, description="What it says")
    times: int = field(min=1, max=9, description="How often")
    api_key: str | None = field(None, secret=True)


class Greeter(Service, name="greeter"):
    """Says hello."""


def apply(ctx: Context, config: Config, tools: Tools) -> None:
    ctx.provide(Greeter(ctx))
    ctx.get("logger")
    ctx.on(ToolsResult, lambda event: None)
'''

ROWS = SPINE + "- {id: hello, name: ./plugins/greeter.py, config: {times: 2}}\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place.make(tmp_path)
    place.write("cordis.yml", ROWS)
    place.write("plugins/greeter.py", GREETER)
    return place


async def test_list_names_files_installed_and_built_in_plugins_with_the_rows_that_mount_them(place: Place) -> None:
    place.write("plugins/spare.py", '"""Not mounted."""\n\ndef apply(ctx, config):\n    print("imported")\n')
    place.write("plugins/test_spare.py", "def apply(): ...\n")
    place.write("plugins/helper.py", "X = 1\n")
    site = place.work / "site"
    place.write("site/acme_words.py", '"""Counts words."""\n\nraise SystemExit("imported")\n')
    place.write("site/acme-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    place.write("site/acme-1.2.dist-info/entry_points.txt", "[dsh.plugins]\nacme-words = acme_words\n")
    env = {"PYTHONPATH": str(site)}
    done = await place.dsh("plugins", "list", "--json", env=env)
    assert done.code == 0 and done.err == ""
    found = {each["name"]: each for each in done.json()}
    assert found["./plugins/greeter.py"] == {
        "name": "./plugins/greeter.py",
        "kind": "file",
        "about": "Greets.",
        "rows": ["hello"],
        "file": str(place.work / "plugins" / "greeter.py"),
        "distribution": None,
    }
    assert found["./plugins/spare.py"]["rows"] == [] and found["./plugins/spare.py"]["about"] == "Not mounted."
    assert "./plugins/helper.py" not in found and "./plugins/test_spare.py" not in found
    assert found["acme-words"]["kind"] == "installed" and found["acme-words"]["distribution"] == "acme 1.2"
    assert found["acme-words"]["about"] == "Counts words."
    assert found["dsh-tools"]["rows"] == ["tools"] and found["dsh-tools"]["kind"] == "built-in"
    assert found["dsh-console"]["rows"] == [] and found["dsh-console"]["about"]
    shown = await place.dsh("plugins", "list", "--mounted")
    assert "./plugins/greeter.py" in shown.out and "dsh-tools" in shown.out and "dsh-console" not in shown.out


async def test_list_of_a_broken_composition_says_so_and_lists_the_rest(place: Place) -> None:
    place.write("cordis.yml", "- id: [\n")
    done = await place.dsh("plugins", "list")
    assert done.code == 0 and "cordis.yml:" in done.err and "dsh-tools" in done.out


@pytest.mark.parametrize("name", ["hello", "./plugins/greeter.py", "plugins/greeter.py"])
async def test_info_tells_purpose_config_services_events_and_source(place: Place, name: str) -> None:
    done = await place.dsh("plugins", "info", name)
    assert done.code == 0, done.err
    assert "./plugins/greeter.py (file, mounted as hello)" in done.out
    assert "source: plugins/greeter.py" in done.out and "And says more" in done.out
    assert 'greeting: string, default "Hello", live\n      What it says' in done.out
    assert "times: whole number (1 to 9), required\n" in done.out
    assert "Provides: greeter\n" in done.out and "Needs: tools\n" in done.out and "Uses if there: logger" in done.out
    assert "Events it defines: greeter/greeted (emit)" in done.out and "Events it hears: tools/result" in done.out


async def test_info_as_json_and_of_built_in_plugins_in_any_spelling(place: Place) -> None:
    for name in ("bash-local", "dsh-bash-local", "@deepseek-ai/dsh-bash-local"):
        told = (await place.dsh("plugins", "info", name, "--json")).json()
        assert told["name"] == "dsh-bash-local" and told["provides"] == ["shell"] and told["needs"] == ["subprocess"]
        assert any(key["key"] == "timeoutMs" and key["live"] and key["default"] == 120000 for key in told["config"])
    assert (await place.dsh("plugins", "info", "cordis:include")).code == 0


async def test_info_of_an_unknown_or_broken_plugin_says_what_is_wrong(place: Place) -> None:
    unknown = await place.dsh("plugins", "info", "bash-loca")
    assert unknown.code == 1 and 'did you mean "bash-local"?' in unknown.err
    group = await place.dsh("plugins", "info", "cordis:group")
    assert group.code == 1 and "group of rows" in group.err
    place.write("plugins/greeter.py", "import nothing_of_that_name\n")
    broken = await place.dsh("plugins", "info", "hello")
    assert broken.code == 1 and "plugins/greeter.py:1" in broken.err and "Traceback" not in broken.err


async def test_graph_shows_who_provides_what_to_whom(place: Place) -> None:
    done = await place.dsh("plugins", "graph")
    assert done.code == 0, done.err
    assert "hello (./plugins/greeter.py)\n  provides greeter\n  needs tools <- tools\n" in done.out
    assert "  provides tools -> agent-loop, hello\n" in done.out
    dot = (await place.dsh("plugins", "graph", "cordis.yml", "--dot")).out
    assert dot.startswith("digraph services {") and '"tools" -> "hello" [label="tools"];' in dot
    wire = (await place.dsh("plugins", "graph", "--json")).json()
    assert {"from": "tools", "to": "hello", "service": "tools"} in wire["edges"]
    assert wire["missing"] == [] and wire["cycles"] == []


async def test_graph_marks_missing_providers_and_rings(place: Place) -> None:
    for own, other in (("egg", "hen"), ("hen", "egg")):
        text = f'inject = ["{other}"]\n\ndef apply(ctx, config):\n    ctx.provide("{own}", 1)\n'
        place.write(f"plugins/{own}.py", text)
    place.write("plugins/lost.py", 'inject = ["nowhere"]\n\ndef apply(ctx, config): ...\n')
    place.write(
        "cordis.yml", "".join(f"- {{id: {each}, name: ./plugins/{each}.py}}\n" for each in ("egg", "hen", "lost"))
    )
    done = await place.dsh("plugins", "graph")
    assert done.code == 1
    assert "egg (./plugins/egg.py) ! in a ring" in done.out and "needs nowhere (MISSING)" in done.out
    assert "! lost needs nowhere, which no row provides" in done.out
    assert "! these wait for each other in a cycle: egg -> hen -> egg" in done.out
    wire = (await place.dsh("plugins", "graph", "--json")).json()
    assert wire["missing"] == [{"row": "lost", "service": "nowhere"}] and wire["cycles"] == [["egg", "hen"]]
    dot = (await place.dsh("plugins", "graph", "--dot")).out
    assert '"missing nowhere" -> "lost" [style=dashed, color=red];' in dot
    assert '"hen" -> "egg" [label="hen", color=red];' in dot and '"egg" -> "hen" [label="egg", color=red];' in dot


async def test_graph_of_a_running_daemon(place: Place) -> None:
    place.write("plugins/lost.py", 'inject = ["nowhere"]\n\ndef apply(ctx, config): ...\n')
    async with place.daemon() as daemon:
        await daemon.ready()
        place.write("cordis.yml", ROWS + "- {id: lost, name: ./plugins/lost.py}\n")
        await daemon.config("applied")
        done = await place.dsh("plugins", "graph", "--live")
        assert done.code == 1, done.err
        assert f"daemon {daemon.process.pid} (cordis.yml)" in done.out
        assert "lost (./plugins/lost.py) ! pending\n  needs nowhere (MISSING)\n" in done.out
        assert "hello (./plugins/greeter.py)\n  provides greeter\n  needs tools <- tools\n" in done.out
