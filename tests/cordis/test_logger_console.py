"""The console log plugin."""

import logging

from dsh.cordis import ConfigError, logger_console
from dsh.cordis.logger_console import format_time
from dsh.cordis.testing import harness
from tests.cordis.helpers import turns


async def test_records_go_to_stderr_with_time_level_and_name(capsys):
    async with harness() as root:
        await root.plugin(logger_console, {"showTime": "", "levels": {"default": 2, "loud": "debug"}})
        root.logger("web").info("served %d", 3)
        root.logger("web").debug("hidden")
        root.logger("loud").debug("shown")
        logging.getLogger("dsh.plain").error("from the standard library")
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.splitlines() == [
        "[I] web served 3",
        "[D] loud shown",
        "[E] plain from the standard library",
    ]


async def test_layout_keys_and_exceptions(capsys):
    async with harness() as root:
        config = {"showTime": "", "maxLength": 20, "label": {"width": 5, "align": "right", "margin": 2}, "colors": 1}
        fiber = await root.plugin(logger_console, config)
        root.logger("web").info("x" * 50)
        await fiber.update({**config, "colors": False})
        try:
            raise ValueError("first line\nsecond line")
        except ValueError:
            root.logger("web").exception("failed")
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert (
        first
        == "\x1b[32m[I]\x1b[0m \x1b[3" + first[len("\x1b[32m[I]\x1b[0m \x1b[3")] + "m  web\x1b[0m  " + "x" * 19 + "…"
    )
    assert second == "[E]   web  failed"
    assert rest[-1] == "    second line"


async def test_unmounting_restores_the_levels_and_ends_the_output(capsys):
    async with harness() as root:
        fiber = await root.plugin(logger_console, {"levels": {"default": "error"}})
        root.logger.info("hidden")
        await fiber.dispose()
        root.logger.info("kept, not printed")
        await turns()
        assert [record.getMessage() for record in root.runtime.logs.records] == ["kept, not printed"]
    assert capsys.readouterr().err == ""


async def test_a_wrong_level_is_refused():
    async with harness() as root:
        fiber = root.plugin(logger_console, {"levels": {"default": "shout"}})
        await root.settle()
        assert isinstance(fiber.error, (ConfigError, ValueError))


def test_time_pattern():
    assert len(format_time("yyyy-MM-dd hh:mm:ss ", 0)) == 20
    assert format_time("SSS", 1.5) == "500"
