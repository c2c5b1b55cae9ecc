"""What the lines of `--output stream-json` name."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.kit import Place


async def test_config_lines_name_the_edited_file_the_same_way_whatever_came_of_it(tmp_path: Path) -> None:
    place = Place.make(tmp_path)
    place.init()
    file, plugin = place.work / "cordis.yml", place.work / "plugins" / "clock.py"
    text, code = file.read_text("utf-8"), plugin.read_text("utf-8")
    async with place.daemon("cordis.yml") as daemon:
        await daemon.ready()
        for path, good, bad in (
            (file, text.replace("timeoutMs: 60000", "timeoutMs: 61000"), text + "- ["),
            (plugin, code.replace("Tell the current", "Tell the very"), code + "\ndef ("),
        ):
            name = str(path.relative_to(place.work))
            path.write_text(bad, "utf-8")
            assert (await daemon.config("refused"))["path"] == name
            path.write_text(good, "utf-8")
            assert (await daemon.config("applied"))["path"] == name
        daemon.signal(signal.SIGTERM)
        assert await daemon.finish() == 0
