"""Edits of a running composition: what they touch, what they leave, and that a refused one changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dsh.cordis import FiberState
from dsh.interfaces.control.picture import picture
from dsh.interfaces.plugin_offers import PluginOffers
from dsh.loader.events import EntryChanged
from dsh.loader.problems import LoadError
from tests.loader.kit import running, write_plugins


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_plugins(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TWO = """
- {id: a, name: ./note.py, config: {text: one}}
- {id: b, name: ./note.py}
"""


# --- nothing, config, live ------------------------------------------------------------------------------------------


async def test_comments_order_labels_and_unknown_keys_change_nothing(folder: Path) -> None:
    async with running(folder, TWO) as it:
        fibers, entries = it.fibers(), {each.address: each for each in it.loader.entries()}
        it.take()
        changed = await it.edit("""
            # a comment
            - {id: b, name: ./note.py, label: Bee}
            - {name: ./note.py, id: a, config: {text: "one"}, x-mine: 1}
            """)
        assert changed and it.take() == []
        assert it.fibers() == fibers
        assert {each.address: each for each in it.loader.entries()} == entries
        assert it.entry("b").row.label == "Bee"
        assert not await it.loader.refresh()


async def test_a_config_edit_restarts_only_its_row(folder: Path) -> None:
    async with running(folder, TWO) as it:
        fibers = it.fibers()
        it.take()
        await it.edit(TWO.replace("one", "two"))
        assert it.take() == ["-a", "+a two"]
        assert it.fibers() == fibers


async def test_an_equal_effective_config_restarts_nothing(folder: Path) -> None:
    async with running(folder, TWO) as it:
        it.take()
        await it.edit(TWO.replace("{text: one}", "{text: !!js \"'o' + 'ne'\", size: 1}"))
        assert it.take() == []
        assert it.entry("a").row.config["size"] == 1


async def test_live_fields_apply_in_place(folder: Path) -> None:
    async with running(folder, TWO) as it:
        it.take()
        config = it.fiber("a").config
        await it.edit(TWO.replace("text: one", "text: one, live: 7"))
        assert it.take() == [] and config.live == 7 and it.fiber("a").config is config


async def test_rows_are_added_and_removed(folder: Path) -> None:
    async with running(folder, TWO) as it:
        a = it.fiber("a")
        it.take()
        await it.edit("- {id: a, name: ./note.py, config: {text: one}}\n- {id: c, name: ./note.py}\n")
        assert it.take() == ["+c -", "-b"]
        assert it.states() == {"a": "active", "c": "active"} and it.fiber("a") is a


async def test_rows_without_ids_keep_theirs_by_name_and_position(folder: Path) -> None:
    text = "- {name: ./note.py, config: {text: 1st}}\n- {name: ./note.py, config: {text: 2nd}}\n"
    async with running(folder, text) as it:
        assert list(it.states()) == ["./note.py#1", "./note.py#2"]
        fibers = it.fibers()
        it.take()
        await it.edit("- {id: new, name: ./consumer.py, disabled: true}\n" + text.replace("2nd", "second"))
        assert it.take() == ["-./note.py#2", "+./note.py#2 second"]
        assert it.fibers()["./note.py#1"] is fibers["./note.py#1"]
        assert (folder / "cordis.yml").read_text().count("id:") == 1


async def test_a_row_left_waiting_is_a_success(folder: Path) -> None:
    async with running(folder, TWO) as it:
        await it.edit(TWO + "- {id: consumer, name: ./consumer.py}\n")
        assert it.states()["consumer"] == "pending"
        await it.edit(TWO + "- {id: consumer, name: ./consumer.py}\n- {id: p, name: ./provider.py}\n")
        assert it.states()["consumer"] == "active"
        await it.edit(TWO + "- {id: consumer, name: ./consumer.py}\n")
        assert it.states()["consumer"] == "pending"


async def test_an_edit_that_makes_rows_wait_for_each_other_says_so_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"- {{id: {name}, name: ./{name}.py}}\n" for name in "xyz")
    write_plugins(
        folder,
        x="provides = ['x']\ninject = ['note']\ndef apply(ctx): ctx.provide('x', 1)\n",
        y="provides = ['y']\ninject = ['x']\ndef apply(ctx): ctx.provide('y', 1)\n",
        z="provides = ['note']\ninject = ['y']\ndef apply(ctx): ctx.provide('note', 1)\n",
    )
    async with running(folder, TWO) as it:
        await it.edit(TWO + rows)
        said = [record.getMessage() for record in caplog.records if "wait" in record.getMessage()]
        assert len(said) == 1 and said[0].endswith(
            "rows wait for each other in a cycle and none can start: x needs note of row z, z needs y of row y, "
            "y needs x of row x; take one of these services out of inject, or let another row provide it"
        )


async def test_functions_that_provide_what_the_other_waits_for_are_told_as_a_cycle(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "def apply(ctx):\n    ctx.provide('{0}', 1)\n"
    write_plugins(
        folder, hen="inject = ['eggs']\n" + text.format("hens"), egg="inject = ['hens']\n" + text.format("eggs")
    )
    async with running(folder, TWO) as it:
        it.root.provide("pluginOffers", PluginOffers())
        await it.edit(TWO + "- {id: hen, name: ./hen.py}\n- {id: egg, name: ./egg.py}\n")
        said = [record.getMessage() for record in caplog.records if "wait" in record.getMessage()]
        assert len(said) == 1 and said[0].endswith(
            "rows wait for each other in a cycle and none can start: hen needs eggs of row egg, "
            "egg needs hens of row hen; take one of these services out of inject, or let another row provide it"
        )
        seen = picture(it.root)
        assert seen["cycles"] == [["hen", "egg"]]
        assert [row["offers"] for row in seen["rows"] if "waitsFor" in row] == [["hens"], ["eggs"]]


# --- disabled -------------------------------------------------------------------------------------------------------


async def test_b03_disabled_by_expression(folder: Path) -> None:
    text = "- {id: a, name: ./note.py, disabled: !!js env.FROM_ENV === '%s'}\n"
    async with running(folder, text % "env") as it:
        assert it.states() == {"a": "disabled"}
        await it.edit(text % "other")
        assert it.states() == {"a": "active"} and it.take() == ["+a -"]
        error = await it.refused("- {id: a, name: !!js \"'./note.py'\"}\n")
        assert error.key == "name" and "only config and disabled do" in str(error)
        error = await it.refused("- {id: a, name: ./note.py, disabled: !!js nope.x}\n")
        assert error.key == "disabled" and error.row == "a" and error.line == 1
        assert it.states() == {"a": "active"}
        it.write(text % "other")
        await it.loader.update("a", {"config": {"text": "x"}})
        await it.loader.written()
        expected = (text % "other").replace("'other'", "'other', config: {text: x}")
        assert (folder / "cordis.yml").read_text() == expected
        await it.loader.update("a", {"disabled": True})
        assert it.states() == {"a": "disabled"}
        await it.loader.update("a", {"disabled": False})
        assert it.states() == {"a": "active"}


async def test_a_disabled_row_is_not_even_looked_up(folder: Path) -> None:
    async with running(folder, "- {id: a, name: no-such-plugin, disabled: true, config: {x: 1}}\n") as it:
        assert it.states() == {"a": "disabled"}


async def test_disabled_is_decided_again_when_the_file_changes_elsewhere(folder: Path) -> None:
    text = "- {id: a, name: ./note.py, disabled: !!js ctx.get('flag') !== undefined}\n"
    async with running(folder, text) as it:
        assert it.states() == {"a": "active"}
        it.root.provide("flag", 1)
        await it.edit(text + "- {id: b, name: ./note.py}\n")
        assert it.states() == {"a": "disabled", "b": "active"}


# --- expressions over services --------------------------------------------------------------------------------------


async def test_b04_a_consumer_reads_its_provider_and_follows_it(folder: Path) -> None:
    text = """
        - {id: consumer, name: ./consumer.py, config: {seen: !!js "ctx.thing.parts[0].trim()"}}
        - {id: provider, name: ./provider.py, config: {value: v, parts: [' x ']}}
        """
    async with running(folder, text) as it:
        assert it.take() == ["+consumer v x"]
        consumer = it.fiber("consumer")
        await it.edit(text.replace("' x '", "' y '"))
        assert it.take() == ["-consumer", "+consumer v y"] and it.fiber("consumer") is consumer
        await it.edit(text.replace("[' x ']", "[]"))
        assert it.states() == {"consumer": "failed", "provider": "active"}
        assert "cannot read 'trim' of undefined" in str(consumer.error)
        await it.edit(text.replace("' x '", "' z '"))
        assert it.states() == {"consumer": "active", "provider": "active"}
        assert it.take() == ["-consumer", "+consumer v z"] and it.fiber("consumer") is consumer


async def test_b05_an_include_stays_literal_and_its_rows_evaluate_in_their_own_context(folder: Path) -> None:
    (folder / "inner.yml").write_text(
        "- {id: consumer, name: ./consumer.py, config: {seen: !!js ctx.thing.value + base_dir.length}}\n"
    )
    text = """
        - id: inner
          name: cordis:include
          config:
            path: inner.yml
            patches:
              - insert: [{id: note, name: ./note.py, config: {text: !!js "'n' + 1"}}]
        - {id: provider, name: ./provider.py, config: {value: v}}
        """
    async with running(folder, text) as it:
        assert sorted(it.take()) == [f"+inner:consumer v v{len(str(folder))}", "+inner:note n1"]
        assert it.states()["inner"] == "active"


# --- refused edits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("- {id: a, name: ./note.py\n  oops", "parse"),
        ("", "parse"),
        ("a: 1\n", "parse"),
        ("- {id: a, name: ./note.py}\n- {id: a, name: ./note.py}\n", "validate"),
        ("- {id: a}\n", "validate"),
        ("- {id: a, name: ./note.py, config: {size: 0}}\n", "config"),
        ("- {id: a, name: ./note.py, config: {fail: true}}\n", "apply"),
        ("- {id: a, name: ./nope.py}\n", "import"),
        ("- {id: a, name: ./broken.py}\n", "import"),
    ],
)
async def test_b06_a_bad_edit_changes_nothing_and_the_next_good_one_applies(
    folder: Path, text: str, stage: str
) -> None:
    write_plugins(folder, broken="def apply(ctx:\n")
    async with running(folder, TWO) as it:
        fibers = it.fibers()
        it.take()
        error = await it.refused(text)
        assert error.stage == stage and error.file == "cordis.yml"
        assert it.fibers() == fibers
        assert it.states() == {"a": "active", "b": "active"} and it.fiber("a").config.text == "one"
        if stage != "apply":
            assert it.take() == []
        it.take()
        await it.edit(TWO.replace("one", "two"))
        assert it.take() == ["-a", "+a two"]


async def test_b06b_an_unreadable_file_changes_nothing(folder: Path) -> None:
    async with running(folder, TWO) as it:
        fibers = it.fibers()
        (folder / "cordis.yml").unlink()
        with pytest.raises(Exception, match=r"cordis.yml: the file does not exist"):
            await it.loader.refresh()
        (folder / "cordis.yml").write_bytes(b"- \xff\n")
        with pytest.raises(Exception, match="not UTF-8"):
            await it.loader.refresh()
        assert it.fibers() == fibers
        assert not await it.edit(TWO)


async def test_a_refused_edit_carries_everything_a_person_needs(folder: Path) -> None:
    async with running(folder, TWO) as it:
        error = await it.refused("""
            - {id: a, name: ./note.py, config: {text: one}}
            - id: b
              name: ./note.py
              config:
                size: 0
                txet: hi
            """)
        assert (error.file, error.line, error.row, error.key) == ("cordis.yml", 6, "b", "config.size")
        assert error.stage == "config" and error.allowed == ("≥ 1",)
        assert str(error) == 'cordis.yml:6: row "b", key config.size: must be ≥ 1, got 0'
        assert [str(each) for each in error.warnings] == [
            'cordis.yml:7: row "b", key config.txet: unknown key; did you mean "text"?'
        ]
        assert error.warnings[0].nearest == "text"


async def test_unknown_keys_warn_with_line_and_nearest_key(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "- {id: a, name: ./note.py, confg: {}, config: {tekst: x}}\n- {id: b, name: ./note.py, size: 2, zzz: 1}\n"
    async with running(folder, text) as it:
        assert [record.getMessage() for record in caplog.records] == [
            'cordis.yml:1: row "a", key confg: unknown key; did you mean "config"?',
            'cordis.yml:1: row "a", key config.tekst: unknown key; did you mean "text"?',
            'cordis.yml:2: row "b", key size: unknown key; did you mean "config.size"?',
            'cordis.yml:2: row "b", key zzz: unknown key (a row has id, name, config, disabled, group, inject, '
            "isolate, intercept, label; settings go into config)",
        ]
        caplog.clear()
        await it.edit(text + "- {id: c, name: ./note.py, config: {tex: x}}\n")
        assert [record.getMessage() for record in caplog.records] == [
            'cordis.yml:3: row "c", key config.tex: unknown key; did you mean "text"?'
        ]


# --- name, failing starts -------------------------------------------------------------------------------------------


async def test_b07a_a_new_name_is_imported_before_the_old_plugin_leaves(folder: Path) -> None:
    write_plugins(folder, other="inject = ['notes']\ndef apply(ctx): ctx['notes'].append('other')\n")
    async with running(folder, TWO) as it:
        old = it.fiber("a")
        it.take()
        await it.refused(TWO.replace("./note.py, config", "./nope.py, config"))
        assert it.fiber("a") is old and it.take() == []
        await it.edit(TWO.replace("./note.py, config: {text: one}", "./other.py"))
        assert it.fiber("a") is not old and old.is_disposed and it.take() == ["-a", "other"]


async def test_b07b_a_failing_start_brings_the_old_plugin_back(folder: Path) -> None:
    write_plugins(folder, bad="def apply(ctx): raise OSError('port in use')\n")
    async with running(folder, TWO) as it:
        b = it.fiber("b")
        it.take()
        error = await it.refused(TWO.replace("./note.py, config: {text: one}", "./bad.py"))
        assert str(error) == 'cordis.yml:2: row "a": apply of ./bad.py: OSError: port in use'.replace(
            '": apply', '", apply'
        )
        assert error.stage == "apply" and isinstance(error.__cause__, OSError)
        assert it.take() == ["-a", "+a one"] and it.fiber("b") is b
        assert it.entry("a").name == "./note.py" and it.states() == {"a": "active", "b": "active"}


async def test_b07c_a_failing_config_brings_the_old_config_back_on_the_same_fiber(folder: Path) -> None:
    async with running(folder, TWO) as it:
        fiber = it.fiber("a")
        it.take()
        await it.refused(TWO.replace("text: one", "text: two, fail: true"))
        assert it.take() == ["-a", "+a one"]
        assert it.fiber("a") is fiber and fiber.config.text == "one" and fiber.state is FiberState.ACTIVE


async def test_b07d_a_failed_direct_update_is_not_kept(folder: Path) -> None:
    async with running(folder, TWO) as it:
        with pytest.raises(Exception, match="size"):
            await it.fiber("a").update({"size": 0})
        assert it.fiber("a").config.text == "one"
        assert it.entry("a").row.config == {"text": "one"}
        await it.edit(TWO + "# touched\n")
        assert it.fiber("a").config.text == "one"


async def test_b08_three_rows_the_last_one_failing(folder: Path) -> None:
    async with running(folder, TWO) as it:
        a = it.fiber("a")
        bad = (
            TWO.replace("one", "two") + "- {id: c, name: ./note.py}\n- {id: d, name: ./note.py, config: {fail: true}}\n"
        )
        error = await it.refused(bad)
        assert error.row == "d"
        assert it.fiber("a") is a and a.config.text == "one"
        assert it.states() == {"a": "active", "b": "active"}
        it.take()
        await it.edit(bad.replace("fail: true", "text: fixed"))
        assert sorted(it.take()) == ["+a two", "+c -", "+d fixed", "-a"]
        assert it.fiber("a") is a


async def test_all_failures_of_an_edit_are_reported_together(folder: Path) -> None:
    async with running(folder, TWO) as it:
        error = await it.refused(
            "- {id: a, name: ./note.py, config: {fail: true}}\n- {id: x, name: ./note.py, config: {fail: true}}\n"
        )
        assert [problem.row for problem in error.problems] == ["a", "x"]
        assert isinstance(error.__cause__, BaseExceptionGroup)
        assert it.states() == {"a": "active", "b": "active"}


async def test_a_failing_rollback_is_reported_with_both_causes_and_the_row_stays_down(folder: Path) -> None:
    write_plugins(
        folder,
        once="""
        starts = 0
        def apply(ctx):
            global starts
            starts += 1
            if starts > 1:
                raise RuntimeError("only once")
        """,
    )
    async with running(folder, "- {id: a, name: ./once.py}\n") as it:
        error = await it.refused("- {id: a, name: ./note.py, config: {fail: true}}\n")
        assert [problem.stage for problem in error.problems] == ["apply", "rollback"]
        assert "a cannot start" in str(error) and "could not be restored: RuntimeError: only once" in str(error)
        assert it.states() == {"a": "failed"} and it.entry("a").fiber is None
        await it.edit("- {id: a, name: ./note.py}\n")
        assert it.states() == {"a": "active"}


# --- exchanging providers -------------------------------------------------------------------------------------------


async def test_one_provider_is_exchanged_for_another_in_one_edit(folder: Path) -> None:
    text = "- {id: consumer, name: ./consumer.py}\n- {id: one, name: ./provider.py}\n- {id: n, name: ./note.py}\n"
    async with running(folder, text) as it:
        it.take()
        await it.edit(
            text.replace("id: one, name: ./provider.py", "id: two, name: ./provider.py, config: {value: two}")
        )
        assert it.take() == ["-consumer", "+consumer two"]
        await it.edit(
            text.replace("id: one, name: ./provider.py", "id: two, disabled: true, name: ./provider.py")
            + "- {id: three, name: ./provider.py, config: {value: three}}\n"
        )
        assert it.take() == ["-consumer", "+consumer three"]
        assert it.states() == {"consumer": "active", "two": "disabled", "n": "active", "three": "active"}


async def test_a_provider_that_fails_to_replace_another_gives_way_again(folder: Path) -> None:
    text = "- {id: consumer, name: ./consumer.py}\n- {id: one, name: ./provider.py}\n"
    async with running(folder, text) as it:
        await it.refused(
            text.replace("id: one, name: ./provider.py", "id: two, name: ./provider.py, config: {fail: true}")
        )
        assert it.states() == {"consumer": "active", "one": "active"}
        assert it.take()[-1] == "+consumer one"


async def test_a_start_that_needs_a_name_a_leaving_row_holds_is_tried_again(folder: Path) -> None:
    write_plugins(
        folder,
        holder="""
        held = {}
        class Taken(Exception): ...
        def claim(ctx, name):
            if name in held:
                raise Taken(f"tool {name} is already registered")
            held[name] = ctx.fiber.entry_id
            ctx.defer(lambda: held.pop(name))
        """,
        tool="""
        from .holder import claim
        inject = ["notes"]
        def apply(ctx, config):
            claim(ctx, config["name"])
            ctx["notes"].append(f"+{ctx.fiber.entry_id}")
            ctx.defer(lambda notes=ctx["notes"]: notes.append(f"-{ctx.fiber.entry_id}"))
        """,
    )
    async with running(folder, "- {id: one, name: ./tool.py, config: {name: t}}\n") as it:
        it.take()
        await it.edit("- {id: two, name: ./tool.py, config: {name: t}}\n")
        assert it.take() == ["-one", "+two"] and it.states() == {"two": "active"}
        error = await it.refused(
            "- {id: three, name: ./tool.py, config: {name: t}}\n- {id: four, name: ./tool.py, config: {name: t}}\n"
        )
        assert "already registered" in str(error)
        assert it.states() == {"two": "active"}


async def test_an_unrelated_failure_does_not_disturb_leaving_rows(folder: Path) -> None:
    async with running(folder, TWO) as it:
        b = it.fiber("b")
        it.take()
        await it.refused(
            "- {id: a, name: ./note.py, config: {text: one}}\n- {id: c, name: ./note.py, config: {fail: true}}\n"
        )
        assert it.take() == [] and it.fiber("b") is b


async def test_two_rows_exchange_their_plugins(folder: Path) -> None:
    write_plugins(folder, other="provides = ['other']\ndef apply(ctx): ctx.provide('other', 1)\n")
    text = "- {id: a, name: ./provider.py}\n- {id: b, name: ./other.py}\n"
    async with running(folder, text) as it:
        await it.edit("- {id: a, name: ./other.py}\n- {id: b, name: ./provider.py}\n")
        assert it.states() == {"a": "active", "b": "active"}
        assert it.fiber("a").provided[0].name == "other"


# --- groups ---------------------------------------------------------------------------------------------------------

GROUPS = """
- id: outer
  name: cordis:group
  disabled: {outer}
  config:
    - id: inner
      name: '@deepseek-ai/cordis-plugin-group'
      disabled: {inner}
      config:
        - {{id: deep, name: ./note.py}}
    - {{id: flat, name: ./note.py}}
- {{id: top, name: ./note.py}}
"""


async def test_b09a_a_disabled_group_takes_its_rows_along(folder: Path) -> None:
    async with running(folder, GROUPS.format(outer="false", inner="false")) as it:
        top = it.fiber("top")
        assert it.states() == {
            "outer": "group", "inner": "group", "deep": "active", "flat": "active", "top": "active"
        }  # fmt: skip
        await it.edit(GROUPS.format(outer="true", inner="false"))
        assert it.states() == {
            "outer": "group", "inner": "group", "deep": "disabled", "flat": "disabled", "top": "active"
        }  # fmt: skip
        await it.edit(GROUPS.format(outer="false", inner="false"))
        assert it.states()["deep"] == it.states()["flat"] == "active" and it.fiber("top") is top


@pytest.mark.parametrize("start", [(o, i) for o in (False, True) for i in (False, True)])
@pytest.mark.parametrize("end", [(o, i) for o in (False, True) for i in (False, True)])
async def test_b09b_nested_disabled_groups_in_all_transitions(
    folder: Path, start: tuple[bool, bool], end: tuple[bool, bool]
) -> None:
    def text(state: tuple[bool, bool]) -> str:
        return GROUPS.format(outer=str(state[0]).lower(), inner=str(state[1]).lower())

    async with running(folder, text(start)) as it:
        await it.edit(text(end) + "# end\n")
        assert it.states()["flat"] == ("disabled" if end[0] else "active")
        assert it.states()["deep"] == ("disabled" if any(end) else "active")
        assert it.states()["top"] == "active"


async def test_b09c_a_row_moves_in_and_out_of_a_group_and_keeps_its_fiber(folder: Path) -> None:
    out = "- {id: g, name: cordis:group, config: []}\n- {id: a, name: ./note.py}\n"
    into = "- {id: g, name: cordis:group, config: [{id: a, name: ./note.py}]}\n"
    async with running(folder, out) as it:
        kinds: list[tuple[str, str]] = []
        it.root.on(EntryChanged, lambda e: kinds.append((e.id, e.kind)))
        fiber = it.fiber("a")
        it.take()
        await it.edit(into)
        assert it.fiber("a") is fiber and it.entry("a").parent is it.entry("g") and kinds == [("a", "moved")]
        await it.edit(out)
        assert it.fiber("a") is fiber and it.entry("a").parent is None and it.take() == []


async def test_b09d_a_move_into_a_disabled_group_unloads(folder: Path) -> None:
    async with running(folder, TWO) as it:
        await it.edit("""
            - {id: g, name: cordis:group, disabled: true, config: [{id: a, name: ./note.py, config: {text: one}}]}
            - {id: b, name: ./note.py}
            """)
        assert it.states() == {"g": "group", "a": "disabled", "b": "active"}
        await it.edit(TWO)
        assert it.states() == {"a": "active", "b": "active"}


async def test_b09e_a_move_with_and_without_realm_consequence(folder: Path) -> None:
    text = """
        - {{id: provider, name: ./provider.py, config: {{value: root}}}}
        - id: g
          name: cordis:group
          isolate: {{thing: true}}
          config:
            - {{id: inner, name: ./provider.py, config: {{value: private}}}}
            {inside}
        {outside}
        """
    consumer, note = "- {id: consumer, name: ./consumer.py}", "- {id: note, name: ./note.py}"
    rows = f"{consumer}\n        {note}"
    inside = f"{consumer}\n            {note}"
    async with running(folder, text.format(inside="", outside=rows)) as it:
        fibers = it.fibers()
        assert sorted(it.take()) == ["+consumer root", "+note -"]
        await it.edit(text.format(inside=inside, outside=""))
        assert it.take() == ["-consumer", "+consumer private"]
        assert it.fibers() == fibers
        await it.edit(text.format(inside="", outside=rows))
        assert it.take() == ["-consumer", "+consumer root"]
        assert it.fibers() == fibers


async def test_b09f_a_failed_move_restores_the_position(folder: Path) -> None:
    text = """
        - {{id: provider, name: ./provider.py, config: {{value: root}}}}
        - id: g
          name: cordis:group
          isolate: {{thing: true}}
          config: [{inside}]
        {outside}
        - {{id: bad, name: ./note.py, config: {{fail: {fail}}}}}
        """
    row = "{id: consumer, name: ./consumer.py}"
    async with running(folder, text.format(inside="", outside="- " + row, fail="false")) as it:
        fiber = it.fiber("consumer")
        await it.refused(text.format(inside=row, outside="", fail="true"))
        assert it.entry("consumer").parent is None and it.fiber("consumer") is fiber
        assert it.states()["consumer"] == "active" and fiber.ctx["thing"].value == "root"


async def test_group_injects_hold_for_its_rows(folder: Path) -> None:
    text = "- {id: g, name: cordis:group, inject: [thing], config: [{id: a, name: ./note.py}]}\n"
    async with running(folder, text + "- {id: p, name: ./provider.py}\n") as it:
        assert it.states()["a"] == "active"
        await it.edit(text)
        assert it.states()["a"] == "pending"
        await it.edit(text.replace("inject: [thing], ", ""))
        assert it.states()["a"] == "active"


# --- realms and intercepts ------------------------------------------------------------------------------------------


async def test_b11a_groups_with_private_realms_see_their_own_provider(folder: Path) -> None:
    def group(name: str) -> str:
        return f"""
        - id: {name}
          name: cordis:group
          isolate: {{thing: true}}
          config:
            - {{id: {name}-c, name: ./consumer.py}}
            - {{id: {name}-p, name: ./provider.py, config: {{value: {name}}}}}
        """

    async with running(folder, group("one") + group("two")) as it:
        assert sorted(it.take()) == ["+one-c one", "+two-c two"]
        assert it.root.get("thing") is None


async def test_b11b_a_label_joins_realms_across_groups_and_files(folder: Path) -> None:
    (folder / "inner.yml").write_text("- {id: c, name: ./consumer.py, isolate: {thing: shared}}\n")
    text = """
        - {id: g, name: cordis:group, isolate: {thing: shared}, config: [{id: p, name: ./provider.py}]}
        - {id: d, name: ./consumer.py, isolate: {thing: shared}}
        - {id: inner, name: cordis:include, config: {path: inner.yml}}
        """
    async with running(folder, text) as it:
        assert sorted(it.take()) == ["+d one", "+inner:c one"]
        assert it.root.get("thing") is None


async def test_b11c_a_realm_edit_restarts_only_the_fibers_it_concerns(folder: Path) -> None:
    text = """
        - id: g
          name: cordis:group
          isolate: {{{realms}}}
          config:
            - {{id: c, name: ./consumer.py}}
            - {{id: p, name: ./provider.py, config: {{value: inner}}}}
            - {{id: n, name: ./note.py}}
        """
    async with running(folder, text.format(realms="thing: true")) as it:
        fibers = it.fibers()
        assert it.root.get("thing") is None
        it.take()
        await it.edit(text.format(realms="thing: true, unrelated: true"))
        assert it.take() == []
        await it.edit(text.format(realms=""))
        assert it.take() == ["-c", "+c inner"] and it.root.get("thing").value == "inner"
        assert it.fibers() == fibers
        await it.edit(text.format(realms="thing: label"))
        assert it.take() == ["-c", "+c inner"] and it.root.get("thing") is None


async def test_an_intercept_edit_applies_in_place(folder: Path) -> None:
    group = "- {{id: g, name: cordis:group, intercept: {{thing: {{level: {level}}}}}, "
    text = group + "config: [{{id: a, name: ./note.py}}]}}\n"
    async with running(folder, text.format(level="1")) as it:
        fiber = it.fiber("a")
        it.take()
        assert fiber.ctx.intercepted("thing") == {"level": 1}
        await it.edit(text.format(level="2"))
        assert it.take() == [] and it.fiber("a") is fiber and fiber.ctx.intercepted("thing") == {"level": 2}


async def test_inject_edits_remount_the_row(folder: Path) -> None:
    async with running(folder, TWO) as it:
        a = it.fiber("a")
        it.take()
        await it.edit(TWO.replace("id: a,", "id: a, inject: [thing],"))
        assert it.states() == {"a": "pending", "b": "active"} and it.take() == ["-a"] and it.fiber("a") is not a


async def test_a_row_may_wait_until_no_other_row_is_loading(folder: Path) -> None:
    write_plugins(
        folder,
        slow="""
        import asyncio
        inject = ["notes", "gate"]
        async def apply(ctx):
            await ctx["gate"].wait()
            ctx["notes"].append("slow")
        """,
    )
    gate = asyncio.Event()
    text = """
        - {id: last, name: ./note.py, inject: {loader: true}, intercept: {loader: {await: true}}}
        - {id: slow, name: ./slow.py}
        """

    def prepare(root: Any) -> None:
        root.provide("gate", gate)
        asyncio.get_running_loop().call_later(0.05, gate.set)

    async with running(folder, text, prepare=prepare) as it:
        assert it.take() == ["slow", "+last -"]


# --- includes -------------------------------------------------------------------------------------------------------


async def test_an_included_file_is_edited_on_its_own(folder: Path) -> None:
    (folder / "sub").mkdir()
    write_plugins(folder / "sub")
    (folder / "sub" / "inner.yml").write_text("- {id: a, name: ./note.py}\n")
    async with running(folder, "- {id: i, name: cordis:include, config: {path: sub/inner.yml}}\n" + TWO[1:]) as it:
        assert it.states() == {"i": "active", "i:a": "active", "a": "active", "b": "active"}
        assert [path.name for path in it.loader.files()] == ["cordis.yml", "cordis.patch.yml", "inner.yml"]
        a = it.fiber("a")
        it.take()
        await it.edit("- {id: a, name: ./note.py, config: {text: new}}\n", "sub/inner.yml")
        assert it.take() == ["-i:a", "+i:a new"] and it.fiber("a") is a
        error = await it.refused("- {id: a, name: ./note.py, config: {size: 0}}\n", "sub/inner.yml")
        assert (error.file, error.row) == ("sub/inner.yml", "i:a")


async def test_new_patches_of_an_include_change_its_rows_only(folder: Path) -> None:
    (folder / "inner.yml").write_text("- {id: a, name: ./note.py}\n- {id: b, name: ./note.py}\n")
    text = "- {id: i, name: cordis:include, config: {path: inner.yml, patches: [{id: a, config: {text: %s}}]}}\n"
    async with running(folder, text % "one") as it:
        fibers = it.fibers()
        assert sorted(it.take()) == ["+i:a one", "+i:b -"]
        await it.edit(text % "two")
        assert it.take() == ["-i:a", "+i:a two"] and it.fibers() == fibers
        error = await it.refused(text % "two, size: 0")
        assert error.row == "i:a" and error.key == "config.size"
        await it.edit(text.replace("[{id: a, config: {text: %s}}]", "[]"))
        assert it.take() == ["-i:a", "+i:a -"] and it.fibers() == fibers
        await it.edit("- {id: a, name: ./note.py, config: {text: own}}\n", "inner.yml")
        assert it.states() == {"i": "active", "i:a": "active"} and it.fibers()["i:a"] is fibers["i:a"]


async def test_another_path_opens_another_tree(folder: Path) -> None:
    (folder / "one.yml").write_text("- {id: a, name: ./note.py, config: {text: one}}\n")
    (folder / "two.yml").write_text("- {id: a, name: ./note.py, config: {text: two}}\n")
    text = "- {id: i, name: cordis:include, config: {path: %s.yml}}\n"
    async with running(folder, text % "one") as it:
        include = it.fiber("i")
        it.take()
        await it.edit(text % "two")
        assert it.take() == ["-i:a", "+i:a two"] and it.fiber("i") is include
        (folder / "three.yml").write_text("- {id: a, name: ./note.py, config: {fail: true}}\n")
        error = await it.refused(text % "three")
        assert error.row == "i:a" and error.file == "three.yml"
        assert it.take() == ["-i:a", "+i:a two"] and it.states() == {"i": "active", "i:a": "active"}


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{path: nope.yml}", "nope.yml: the file does not exist"),
        ("{path: inner.txt}", "key config.path: must be a file ending in .yml, .yaml, .json"),
        ("{}", "key config.path: required (a string)"),
        ("{path: cordis.yml}", "cordis.yml would include itself"),
        ("{path: empty.yml}", "empty.yml: must be a list of rows, the file is empty"),
        ("{path: loop.yml}", "cordis.yml would include itself"),
    ],
)
async def test_includes_that_cannot_open_refuse_the_edit(folder: Path, config: str, says: str) -> None:
    (folder / "empty.yml").write_text("# nothing\n")
    (folder / "loop.yml").write_text("- {id: back, name: cordis:include, config: {path: cordis.yml}}\n")
    async with running(folder, TWO) as it:
        error = await it.refused(f"{TWO}- {{id: i, name: cordis:include, config: {config}}}\n")
        assert says in str(error)
        assert it.states() == {"a": "active", "b": "active"}


async def test_initial_rows_stand_in_for_a_missing_file(folder: Path) -> None:
    text = "- {id: i, name: cordis:include, config: {path: later.yml, initial: [{id: a, name: ./note.py}]}}\n"
    async with running(folder, text) as it:
        assert it.states() == {"i": "active", "i:a": "active"}
        await it.edit("- {id: b, name: ./note.py}\n", "later.yml")
        assert it.states() == {"i": "active", "i:b": "active"}


async def test_json_files_can_be_included(folder: Path) -> None:
    (folder / "inner.json").write_text(
        '[{"id": "a", "name": "./note.py", "config": {"text": {"__jsExpr": "1 + \'x\'"}}}]'
    )
    async with running(folder, "- {id: i, name: cordis:include, config: {path: inner.json}}\n") as it:
        assert it.take() == ["+i:a 1x"]


# --- edits in flight ------------------------------------------------------------------------------------------------


async def test_edits_queue_and_survive_whoever_asked_for_them(folder: Path) -> None:
    async with running(folder, TWO) as it:
        it.write(TWO.replace("one", "two"))
        first = asyncio.ensure_future(it.loader.refresh())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        results = await asyncio.gather(it.loader.refresh(), it.loader.refresh())
        assert it.fiber("a").config.text == "two" and results == [False, False]


async def test_a_start_that_hangs_does_not_hold_up_the_next_edit(folder: Path) -> None:
    write_plugins(folder, stuck="import asyncio\nasync def apply(ctx): await asyncio.Event().wait()\n")
    async with running(folder, TWO, settle_limit=0.05) as it:
        await it.edit(TWO + "- {id: stuck, name: ./stuck.py}\n")
        assert it.states()["stuck"] == "loading"
        await it.edit(TWO)
        assert it.states() == {"a": "active", "b": "active"}


async def test_leaving_during_an_edit_is_quiet(folder: Path) -> None:
    write_plugins(folder, stuck="import asyncio\nasync def apply(ctx): await asyncio.Event().wait()\n")
    async with running(folder, TWO) as it:
        it.write(TWO + "- {id: stuck, name: ./stuck.py}\n")
        edit = asyncio.ensure_future(it.loader.refresh())
        await asyncio.sleep(0.05)
    edit.cancel()
    await asyncio.gather(edit, return_exceptions=True)


async def test_a_row_that_disposes_itself_stays_down_until_it_changes(folder: Path) -> None:
    async with running(folder, TWO) as it:
        kinds: list[tuple[str, str]] = []
        it.root.on(EntryChanged, lambda e: kinds.append((e.id, e.kind)))
        await it.fiber("a").dispose()
        assert it.states() == {"a": "disabled", "b": "active"} and kinds == [("a", "unload")]
        await it.loader.written()
        text = (folder / "cordis.yml").read_text()
        await it.edit(text + "# other\n")
        assert it.states()["a"] == "disabled"
        await it.edit(TWO)
        assert it.states()["a"] == "active"


async def test_an_edit_that_the_end_of_the_loader_cuts_short_says_so(folder: Path) -> None:
    write_plugins(folder, stuck="import asyncio\nasync def apply(ctx): await asyncio.Event().wait()\n")
    async with running(folder, TWO) as it:
        it.write(TWO + "- {id: stuck, name: ./stuck.py}\n")
        edit = asyncio.ensure_future(it.loader.refresh())
        await asyncio.sleep(0.05)
    with pytest.raises(LoadError, match="shutting down"):
        await asyncio.wait_for(edit, 5)


# --- any sequence of edits ------------------------------------------------------------------------------------------


def random_composition(random: Random) -> tuple[str, dict[str, str], bool]:
    """A file, the states its rows shall have, and whether it can be taken over."""
    lines: list[str] = []
    states: dict[str, str] = {}
    good = True
    provided = random.random() < 0.6
    group_off = random.random() < 0.3
    realm = random.choice(["", "isolate: {thing: true}, ", "isolate: {thing: shared}, "])
    inside: list[str] = []
    for name in random.sample("abcdef", random.randint(1, 6)):
        kind = random.choice(["note", "note", "consumer"])
        off = random.random() < 0.2
        fail = kind == "note" and random.random() < 0.06
        config = "{fail: true}" if fail else f"{{text: '{random.randint(1, 2)}'}}" if kind == "note" else "{}"
        row = f"{{id: {name}, name: ./{kind}.py, disabled: {str(off).lower()}, config: {config}}}"
        grouped = random.random() < 0.4
        (inside if grouped else lines).append(row)
        down = off or (grouped and group_off)
        good = good and not (fail and not down)
        waits = kind == "consumer" and (not provided or (grouped and realm != ""))
        states[name] = "disabled" if down else "pending" if waits else "active"
    if provided:
        name = random.choice("pq")
        lines.append(f"{{id: {name}, name: ./provider.py}}")
        states[name] = "active"
    off = str(group_off).lower()
    lines.append(f"{{id: g, name: cordis:group, {realm}disabled: {off}, config: [{', '.join(inside)}]}}")
    states["g"] = "group"
    random.shuffle(lines)
    return "".join(f"- {line}\n" for line in lines), states, good


@pytest.mark.parametrize("seed", range(4))
async def test_after_any_sequence_of_edits_the_tree_is_that_of_the_last_good_file(folder: Path, seed: int) -> None:
    random = Random(seed)
    async with running(folder, "[]\n") as it:
        expected: dict[str, str] = {}
        for _ in range(40):
            text, states, good = random_composition(random)
            if good:
                await it.edit(text)
                expected = states
            else:
                await it.refused(text)
            await it.root.settle()
            assert it.states() == expected, text
            assert set(it.loader.fibers()) == set(it.loader._entries)
        balance: dict[str, int] = {}
        for note in it.notes:
            name = note[1:].split()[0]
            balance[name] = balance.get(name, 0) + (1 if note[0] == "+" else -1)
        running_now = {name for name, state in expected.items() if state == "active" and name in "abcdef"}
        assert {name for name, count in balance.items() if count} == running_now
        await it.edit("[]\n")
        assert len(it.loader.fibers()) == 1
