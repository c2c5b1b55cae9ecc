"""What the tokens of a model cost, as the configuration of its provider states it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsh.cordis.schema import field
from dsh.llm.retry_policy import ClosedConfig

_HIGHEST: Final = 1_000_000_000


class Prices(ClosedConfig):
    """Prices of one model for a million tokens each. None has a default: a guess would look like a fact."""

    input: float = field(min=0, max=_HIGHEST, description="A million input tokens that come from no cache")
    cached_input: float = field(min=0, max=_HIGHEST, description="A million input tokens read from the cache")
    output: float = field(min=0, max=_HIGHEST, description="A million output tokens, those of reasoning among them")
    currency: str = field("USD", description="Code of the currency, such as USD or CNY")

    def cross_check(self) -> Iterable[tuple[str, str]]:
        code = self.currency
        if not (len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()):
            yield "currency", f'must be a code of three capital letters, such as USD or CNY, got "{code}"'
