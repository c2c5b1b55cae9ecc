"""``dsh completion``: scripts that let a shell complete commands, keys, values, agents and sessions."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="A script for your shell, to complete commands, keys, values, agents and sessions.",
)

BASH = r"""# dsh for bash. In ~/.bashrc:  eval "$(dsh completion bash)"
_dsh() {
    local line="${COMP_LINE:0:COMP_POINT}" word prefix offer
    local -a words=()
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word="${words[${#words[@]}-1]}"
    prefix="${word%"${word##*[=:]}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r offer _; do
        if [[ $offer == :files ]]; then
            compopt -o filenames 2> /dev/null
            while IFS= read -r offer; do COMPREPLY+=("$offer"); done < <(compgen -f -- "${word##*=}")
        elif [[ -n $offer ]]; then
            [[ $offer == *= ]] && compopt -o nospace 2> /dev/null
            COMPREPLY+=("${offer#"$prefix"}")
        fi
    done < <("${words[0]}" completion words -- "${words[@]:1}" 2> /dev/null)
}
complete -F _dsh dsh
"""

ZSH = r"""#compdef dsh
# dsh for zsh. In ~/.zshrc, after compinit:  eval "$(dsh completion zsh)"
_dsh() {
    local line offer
    local -a offers open
    for line in "${(@f)$("${words[1]}" completion words -- "${(@Q)words[2,CURRENT]}" 2> /dev/null)}"; do
        offer="${line%%$'\t'*}"
        if [[ $offer == :files ]]; then
            _files
            return
        elif [[ $offer == *= ]]; then
            open+=("${offer//:/\\:}:${line#*$'\t'}")
        elif [[ -n $offer ]]; then
            offers+=("${offer//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( $#open )) && _describe -t values dsh open -S ''
    (( $#offers )) && _describe -t values dsh offers
}
if [[ $funcstack[1] == _dsh ]]; then _dsh "$@"; else compdef _dsh dsh; fi
"""

FISH = r"""# dsh for fish. In ~/.config/fish/completions/dsh.fish:  dsh completion fish | source
function __dsh_offers
    set -l words (commandline -opc) (commandline -ct)
    set -l offers (command $words[1] completion words -- $words[2..-1] 2> /dev/null)
    if contains -- :files $offers
        __fish_complete_path (commandline -ct)
    else if test (count $offers) -gt 0
        string join -- \n $offers
    end
end
complete -c dsh -f -a '(__dsh_offers)'
"""


@app.command()
def bash() -> None:
    """Print the script for bash: eval "$(dsh completion bash)" in ~/.bashrc."""
    typer.echo(BASH, nl=False)


@app.command()
def zsh() -> None:
    """Print the script for zsh: eval "$(dsh completion zsh)" in ~/.zshrc, after compinit."""
    typer.echo(ZSH, nl=False)


@app.command()
def fish() -> None:
    """Print the script for fish: dsh completion fish | source, in ~/.config/fish/completions/dsh.fish."""
    typer.echo(FISH, nl=False)


@app.command(hidden=True)
def words(
    line: Annotated[list[str] | None, typer.Argument(help="The words after dsh, the last one begun.")] = None,
) -> None:
    """Print what the last word may become, a line each: the word, a tab, what it is."""
    from contextlib import redirect_stdout

    from dsh.cli.completing import offers

    try:
        with redirect_stdout(sys.stderr):  # plugins are imported, and some print
            found = offers(line or [""])
    except Exception:  # nothing may disturb somebody who is typing
        found = []
    for text, about in found:
        typer.echo("\t".join(filter(None, (text, " ".join(about.split())))))
