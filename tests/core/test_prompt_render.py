"""Strict rendering of prompt templates."""

from __future__ import annotations

import pytest

from dsh.core.prompt_render import PromptError, render_text

VARIABLES = {"cwd": "/tmp", "model": None, "a_1": "{{cwd}}"}


def render(template: str) -> str:
    return render_text(template, VARIABLES, "section", "s")


def test_b45a_values_go_in_verbatim_and_are_not_rescanned() -> None:
    assert render("in {{cwd}}, then {{a_1}}{{cwd}}.") == "in /tmp, then {{cwd}}/tmp."


def test_b45b_lone_braces_are_text() -> None:
    for plain in ("{ a } {b} }}", "an open {{ stays", "{{", "x {{cwd", "{0} %(x)s \\1 $&"):
        assert render(plain) == plain
    assert render("{{cwd}} and {{ open") == "/tmp and {{ open"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{nope}}", 'unknown prompt variable "{{nope}}" in section "s"; registered variables: a_1, cwd, model'),
        ("{{model}}", 'prompt variable "{{model}}" has no value for this assembly (section "s")'),
        (
            "{{ cwd }}",
            'malformed prompt variable reference "{{ cwd }}" in section "s" (variable names match /^[a-z][a-z0-9_]*$/)',
        ),
        (
            "{{}}",
            'malformed prompt variable reference "{{}}" in section "s" (variable names match /^[a-z][a-z0-9_]*$/)',
        ),
        (
            "{{Bad}}",
            'malformed prompt variable reference "{{Bad}}" in section "s" (variable names match /^[a-z][a-z0-9_]*$/)',
        ),
        (
            "x {{cwd} and more text}}",
            'malformed prompt variable reference at "{{cwd} and more …" in section "s" '
            "(references are complete simple {{name}} groups)",
        ),
        (
            "{{{cwd}}}",
            'malformed prompt variable reference at "{{{cwd}}}…" in section "s" '
            "(references are complete simple {{name}} groups)",
        ),
    ],
)
def test_b45c_every_other_reference_is_refused(template: str, message: str) -> None:
    with pytest.raises(PromptError) as caught:
        render(template)
    assert str(caught.value) == message


def test_b45d_without_variables_the_list_says_none() -> None:
    with pytest.raises(PromptError) as caught:
        render_text("{{x}}", {}, "context", "c")
    assert str(caught.value) == 'unknown prompt variable "{{x}}" in context "c"; registered variables: (none)'
