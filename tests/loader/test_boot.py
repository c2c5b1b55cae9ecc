"""Starting a composition: layers, launcher services, the audit, and every way to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsh.cordis import Context
from dsh.loader.boot import BootError, BootUsageError
from dsh.loader.environment import EnvLayer, LaunchEnvironment
from dsh.loader.sources import UsageError
from tests.loader.kit import running, write_plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def failing(folder: Path, text: str, **options: Any) -> BootError:
    with pytest.raises(BootError) as caught:
        async with running(folder, text, **options):
            pass
    return caught.value


async def test_rows_start_whatever_their_order(folder: Path) -> None:
    text = """
        - {id: consumer, name: ./consumer.py}
        - {id: provider, name: ./provider.py, config: {value: hello}}
        - {id: note, name: ./note, config: {text: !env FROM_ENV}}
        """
    async with running(folder, text) as it:
        assert it.states() == {"consumer": "active", "provider": "active", "note": "active"}
        assert sorted(it.take()) == ["+consumer hello", "+note env"]
    assert sorted(it.take()) == ["-consumer", "-note"]


async def test_launcher_services_are_there_before_any_row(folder: Path) -> None:
    seen: list[Any] = []

    def prepare(root: Context) -> None:
        seen.append(list(root["loader"].entries()))

    text = """
        - id: note
          name: ./note.py
          inject: [cmdlineArgs]
          config: {text: !!js "ctx.cmdlineArgs === undefined ? 'no' : dshHomePath('x')"}
        """
    async with running(folder, text, prepare=prepare, args=["task", "--flag"]) as it:
        assert seen == [[]]
        assert it.root["cmdlineArgs"].get() == ("task", "--flag")
        assert it.root["dshHomePath"] == folder / "home"
        assert it.root["launchEnvironment"].values["FROM_ENV"] == "env"
        assert it.take() == [f"+note {folder / 'home' / 'x'}"]


async def test_b14a_a_waiting_row_is_reported_with_the_services_it_waits_for(folder: Path) -> None:
    before = "- {id: consumer, name: ./consumer.py, inject: [other]}\n"
    error = await failing(folder, before)
    assert str(error) == (
        'dsh: plugin tree failed to load: cordis.yml:1: row "consumer": waiting for services: thing, other, '
        "which no running row provides"
    )
    assert (folder / "cordis.yml").read_text() == before


async def test_b14b_rows_that_wait_for_each_other_are_named(folder: Path) -> None:
    write_plugins(
        folder,
        a="inject = ['b']\nprovides = ['a']\ndef apply(ctx): ctx.provide('a', 1)\n",
        b="inject = ['a']\nprovides = ['b']\ndef apply(ctx): ctx.provide('b', 1)\n",
    )
    error = await failing(folder, "- {id: a, name: ./a.py}\n- {id: b, name: ./b.py}\n")
    assert str(error) == (
        'dsh: plugin tree failed to load: cordis.yml:1: row "a": rows wait for each other in a cycle and '
        "none can start: a needs b of row b, b needs a of row a; "
        "take one of these services out of inject, or let another row provide it"
    )


async def test_b14c_a_row_that_waits_for_a_failed_one_says_so(folder: Path) -> None:
    text = """
        - {id: consumer, name: ./consumer.py}
        - {id: provider, name: ./provider.py, config: {fail: true}}
        """
    error = await failing(folder, text)
    assert 'waiting for services: thing (row "provider" provides thing, but is failed)' in str(error)
    assert 'row "provider", apply of ./provider.py: RuntimeError: the provider cannot start' in str(error)


async def test_b14d_two_failing_rows_stand_in_one_report_with_tracebacks(folder: Path) -> None:
    text = """
        - {id: one, name: ./note.py, config: {fail: true}}
        - {id: fine, name: ./note.py}
        - {id: two, name: ./note.py, config: {size: 0, text: 3}}
        - {id: three, name: ./nope.py}
        - {id: four, name: llm-deepsek}
        """
    error = await failing(folder, text, bin="dsh run")
    report = str(error)
    assert report.startswith("dsh run: plugin tree failed to load:\n")
    assert 'cordis.yml:2: row "one", apply of ./note.py: RuntimeError: one cannot start' in report
    assert "Traceback (most recent call last):" in report and 'note.py", line' in report
    assert "/dsh/cordis/" not in report and "/dsh/loader/" not in report
    assert 'cordis.yml:4: row "two", key config.size: must be ≥ 1, got 0' in report
    assert 'cordis.yml:5: row "three", key name: there is no plugin at ./nope.py' in report
    assert 'row "four", key name: no plugin is called "llm-deepsek"; did you mean "llm-deepseek"?' in report
    assert {problem.row for problem in error.problems} == {"one", "two", "three", "four"}


async def test_b14e_failure_in_prepare_is_labelled_and_the_root_disposed(folder: Path) -> None:
    roots: list[Context] = []

    async def prepare(root: Context) -> None:
        roots.append(root)
        raise ValueError("no terminal")

    notes: list[str] = []
    write_plugins(folder)
    (folder / "cordis.yml").write_text("- {id: note, name: ./note.py}\n")
    from dsh.loader.boot import boot

    with pytest.raises(BootError) as caught:
        async with boot(folder / "cordis.yml", prepare=prepare):
            pass
    assert str(caught.value).startswith("dsh: host preparation failed: no terminal\n")
    assert "ValueError: no terminal" in str(caught.value)
    assert roots[0].fiber.is_disposed and notes == []


async def test_b14f_a_failed_boot_disposes_what_already_ran(folder: Path) -> None:
    notes: list[str] = []
    with pytest.raises(BootError):
        async with running(
            folder, "- {id: a, name: ./note.py}\n- {id: b, name: ./note.py, config: {fail: true}}\n"
        ) as it:
            notes = it.notes
    del notes
    roots: list[Context] = []
    seen: list[str] = []

    def prepare(root: Context) -> None:
        roots.append(root)
        root.provide("other", seen)

    error = await failing(folder, "- {id: b, name: ./note.py, config: {fail: true}}\n", prepare=prepare)
    assert error.code == "BOOT_FAILED" and roots[0].fiber.is_disposed


async def test_b14g_a_row_that_shuts_the_root_down_ends_the_boot_quietly(folder: Path) -> None:
    write_plugins(folder, once="def apply(ctx):\n    ctx.root.fiber.dispose()\n")
    text = "- {id: once, name: ./once.py}\n- {id: never, name: ./consumer.py}\n"
    async with running(folder, text) as it:
        assert it.app.is_over


async def test_b14h_a_row_that_asks_to_exit_ends_the_boot_quietly(folder: Path) -> None:
    write_plugins(folder, once="inject = ['appExit']\ndef apply(ctx):\n    ctx['appExit'](3)\n")
    text = "- {id: once, name: ./once.py}\n- {id: never, name: ./consumer.py}\n"
    async with running(folder, text) as it:
        assert it.app.is_over and it.app.exit.code == 3
        assert await it.app.exit.wait() == 3


async def test_b14i_secrets_are_masked_in_the_report(folder: Path) -> None:
    write_plugins(
        folder,
        leaky="""
        from dsh.cordis import ConfigModel, field
        class Config(ConfigModel):
            key: str = field("", secret=True)
        def apply(ctx, config):
            raise RuntimeError(f"refused: {config.key} and env-secret-1")
        """,
    )
    environment = LaunchEnvironment([EnvLayer("process", {"SOME_API_KEY": "env-secret-1"})])
    error = await failing(
        folder, "- {id: leaky, name: ./leaky.py, config: {key: file-secret-1}}\n", environment=environment
    )
    assert "env-secret-1" not in str(error) and "file-secret-1" not in str(error) and "***" in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cordis.yml: must be a list of rows, the file is empty"),
        ("a: 1\n", "cordis.yml:1: must be a list of rows, got a mapping"),
        ("- {id: x\n", "cordis.yml:1: the { here is not closed"),
        ("- 5\n", "cordis.yml:1: key [0]: a row must be a mapping with a name, got 5"),
        ("- {id: a}\n", 'cordis.yml:1: row "a": a row needs a name'),
        ("- {id: a, nmae: ./note.py}\n", 'a row needs a name (the row has "nmae")'),
        ("- {id: a, name: ./x.py}\n- {id: a, name: ./x.py}\n", 'cordis.yml:2: row "a", key id: the id stands twice'),
        ("- {id: 'a:b', name: ./note.py}\n", "text without ':'"),
        ("- {id: 5, name: ./note.py}\n", "put a number in quotes"),
        ("- {id: a, name: !!js 'x'}\n", "name takes no expression; only config and disabled do"),
        ("- {id: a, name: x, disabled: 'no'}\n", 'key disabled: must be true, false or an expression, got "no"'),
        ("- {id: a, name: ./note.py, inject: 5}\n", "key inject: must be a list of service names"),
        ("- {id: a, name: ./note.py, inject: !!js x}\n", "inject takes no expression"),
        ("- {id: a, name: ./note.py, isolate: {x: 5}}\n", "key isolate.x: must be true or the label"),
        ("- {id: a, name: ./note.py, intercept: {x: {y: !!js z}}}\n", "key intercept.x.y: y takes no expression"),
        ("- {id: a, name: x, config: {text: !!js '1 +'}}\n", "key config.text: expression `1 +`: unexpected end"),
        ("- {id: a, name: cordis:group, config: {x: 1}}\n", "the config of a group is its list of rows, got a mapping"),
    ],
)  # fmt: skip
async def test_files_that_cannot_be_used_are_reported_with_line_row_and_key(folder: Path, text: str, says: str) -> None:
    error = await failing(folder, text)
    assert says in str(error)
    assert str(error).startswith("dsh: plugin tree failed to load: cordis.yml")


async def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(BootError, match=r"cordis.yml: the file does not exist"):
        async with running(folder):
            pass


async def test_layers_apply_in_order(folder: Path) -> None:
    (folder / "cordis.patch.yml").write_text(
        "- {id: note, config: {text: sibling}}\n- insert: [{id: b, name: ./note}]\n"
    )
    (folder / "one.yml").write_text("- {id: note, config: {text: one, size: 2}}\n- {id: b, config: {text: b}}\n")
    (folder / "two.yml").write_text("- {id: nobody, disabled: true}\n")
    async with running(
        folder,
        "- {id: note, name: ./note.py, config: {text: file}}\n",
        overlays=["one.yml", "two.yml"],
        sets=["note.text=set", "b.size=7"],
    ) as it:
        assert sorted(it.take()) == ["+b b", "+note set"]
        assert it.fiber("note").config.size == 2 and it.fiber("b").config.size == 7
        assert [path.name for path in it.loader.files()] == ["cordis.yml", "cordis.patch.yml", "one.yml", "two.yml"]


async def test_a_missing_overlay_is_an_error_and_a_missing_sibling_none(folder: Path) -> None:
    error = await failing(folder, "- {id: note, name: ./note.py}\n", overlays=["nope.yml"])
    assert "nope.yml: the file does not exist" in str(error)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("note", "expected ROW.KEY=VALUE"),
        ("note=1", "expected ROW.KEY=VALUE"),
        ("nota.text=1", "no row has that id; did you mean note?"),
        ("note.text=[", "--set: note.text=["),
        ("note.text.x=1", "inside a value that is no mapping"),
        ("group.x=1", "the row is a group"),
    ],
)
def test_set_arguments_that_cannot_apply(folder: Path, argument: str, says: str) -> None:
    from dsh.loader.boot import make_source

    (folder / "cordis.yml").write_text(
        "- {id: note, name: ./note.py, config: {text: a}}\n- {id: group, name: cordis:group, config: []}\n"
    )
    with pytest.raises(UsageError) as caught:
        make_source("cordis.yml", sets=[argument]).read()
    assert says in str(caught.value)


def test_set_reads_values_in_the_dialect_and_makes_nested_keys(folder: Path) -> None:
    from dsh.loader.boot import make_source

    (folder / "cordis.yml").write_text("- {id: a.b, name: x}\n- {id: a, name: y}\n")
    sets = ["a.b.deep.er=[1, off]", "a.n=010", "a.text='10'", "a.e=!!js 1 + 1", "a.none="]
    rows = make_source("cordis.yml", sets=sets).read().composition.rows
    assert rows[0]["config"] == {"deep": {"er": [1, "off"]}}
    assert {key: str(value) for key, value in rows[1]["config"].items()} == {
        "n": "10",
        "text": "10",
        "e": "!!js 1 + 1",
        "none": "None",
    }


async def test_a_set_argument_that_fits_no_row_is_a_usage_error(folder: Path) -> None:
    with pytest.raises(BootUsageError) as caught:
        async with running(folder, "- {id: note, name: ./note.py}\n", sets=["nota.text=1"]):
            pass
    assert str(caught.value) == "dsh: --set: nota.text=1: no row has that id; did you mean note?"
