"""`dsh models`: the routes of a composition, which is the default and why, and choosing another."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dsh.loader.home import resolve_home
from dsh.models.local_pull import model_file
from tests.cli.compositions import SPINE
from tests.cli.kit import TIMEOUT, Place


async def test_routes_say_whether_they_can_be_used_and_why_not_and_why_the_default_is_it(place: Place) -> None:
    done = await place.dsh("models")
    assert done.code == 0, done.err
    assert "default: demo/demo\n" in done.out and "* demo" in done.out
    words = " ".join(done.out.split())
    assert 'the first candidate of row "agent-default-model" that can be used, after deepseek-official/' in words
    assert "deepseek-official (DeepSeek): cannot be used: no key" in words and "1,000,000 tokens" in done.out
    assert "  smollm2-135m  8,192 tokens; text\n    costs nothing\n" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    edited = (place.work / "cordis.yml").read_text("utf-8")
    models = (
        "config: {models: [{id: deepseek-flash, prices: {input: 0.3, cachedInput: 0.006, output: 1.2}}, {id: other}]}"
    )
    place.write("cordis.yml", edited.replace("name: dsh-llm-deepseek\n", f"name: dsh-llm-deepseek\n  {models}\n"))
    done = await place.dsh("models")
    assert "    $0.3 in, $0.006 cached, $1.2 out per million tokens\n  other" in done.out
    with_key = await place.dsh("models", "--json", env={"DEEPSEEK_API_KEY": "sk-x"})
    told = with_key.json()
    assert told["default"] == {"provider": "deepseek-official", "model": "deepseek-flash"}
    usable = {each["id"]: each["unusable"] for each in told["providers"]}
    assert usable["deepseek-official"] is None and usable["demo"] is None
    flash, other = told["providers"][0]["models"]
    assert flash["context"] == {"contextWindow": 1_000_000} and "prices" not in other
    assert flash["prices"] == {"input": 0.3, "cachedInput": 0.006, "output": 1.2, "currency": "USD"}


async def test_set_stores_the_choice_in_the_settings_and_it_wins(place: Place) -> None:
    done = await place.dsh("models", "set", "local/some/model")
    assert done.code == 0 and "local/some/model is the default now" in done.out
    assert 'local does not list the model "some/model"' in done.err and "local cannot be used now" in done.err
    told = (await place.dsh("models", "--json")).json()
    assert told["default"] == {"provider": "local", "model": "some/model"} and "your choice in" in told["why"]
    assert (await place.dsh("settings", "get", "agent-default-model.model")).out == "some/model\n"
    await place.dsh("settings", "unset", "agent-default-model")
    assert (await place.dsh("models", "--json")).json()["default"]["provider"] == "demo"


async def test_set_drops_the_effort_of_the_route_before_and_refuses_what_is_no_route(place: Place) -> None:
    place.home.mkdir(mode=0o700)
    (place.home / "settings.yaml").write_text(
        "# mine\nagent-default-model: {provider: demo, model: demo, reasoningEffort: max}\nother: {a: 1}\n"
    )
    assert (await place.dsh("models", "set", "demo/demo")).err == ""
    assert (await place.dsh("models", "--json")).json()["default"] == {"provider": "demo", "model": "demo"}
    text = (place.home / "settings.yaml").read_text()
    assert "# mine" in text and "other: {a: 1}" in text and "reasoningEffort" not in text
    for wrong in ("demo", "/demo", "demo/"):
        done = await place.dsh("models", "set", wrong)
        assert done.code == 2 and "write PROVIDER/MODEL" in done.err
    near = await place.dsh("models", "set", "dmo/demo")
    assert near.code == 1 and 'offers the provider "dmo"; did you mean "demo"?; nothing was changed' in near.err
    assert (place.home / "settings.yaml").read_text() == text


async def test_a_running_daemon_is_asked_and_follows_the_choice(place: Place) -> None:
    async with place.daemon() as daemon:
        await daemon.ready()
        assert f"daemon {daemon.process.pid}" in (await place.dsh("models")).out
        done = await place.dsh("models", "set", "local/smollm2-135m")
        assert done.code == 0
        async with asyncio.timeout(TIMEOUT):
            while (told := (await place.dsh("models", "--json")).json())["default"]["provider"] != "local":
                pass
        assert told["pid"] == daemon.process.pid


async def test_a_composition_without_models_or_one_that_does_not_start_says_so(place: Place) -> None:
    place.write("cordis.yml", SPINE)
    done = await place.dsh("models")
    assert done.code == 0 and "no row offers a model" in done.out and "no row agent-default-model" in done.out
    place.write("cordis.yml", "- {id: x, name: ./gone.py}\n")
    broken = await place.dsh("models")
    assert broken.code == 1 and "cordis.yml:1" in broken.err and "Traceback" not in broken.err


async def test_a_profile_without_the_local_route_does_not_advise_to_fetch_the_model_that_is_here(
    tmp_path: Path,
) -> None:
    place = Place.make(tmp_path)
    before = await place.dsh("--profile", "headless", "exec", "hi")
    assert before.code == 1 and "`dsh local pull`" in before.err
    model = model_file(resolve_home(str(place.home), {}))
    model.parent.mkdir(parents=True)
    model.touch()
    done = await place.dsh("--profile", "headless", "exec", "hi")
    assert done.code == 1 and "MISSING_CREDENTIAL" in done.err
    assert "`dsh local pull`" not in done.err and "use the local model, which is here" in done.err
