"""The nearest valid word for a misspelt one: what "did you mean" suggestions are made of."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or `None` when nothing comes close.

    Case, `_` and `-` do not count first, so `max_tokens` finds `maxTokens`.
    """
    known = list(candidates)
    by_squeezed = {_squeeze(name): name for name in reversed(known)}
    squeezed = _squeeze(word)
    if squeezed in by_squeezed:
        return by_squeezed[squeezed]
    from difflib import get_close_matches

    found = get_close_matches(squeezed, by_squeezed, n=1, cutoff=0.6)
    return by_squeezed[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean "x"?` or nothing, to append to a message."""
    return meant(nearest(word, candidates))


def meant(found: str | None) -> str:
    """The same for a word that was looked for already."""
    return f'; did you mean "{found}"?' if found is not None else ""


def _squeeze(word: str) -> str:
    return word.replace("_", "").replace("-", "").casefold()
