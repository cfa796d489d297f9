"""Parts of error messages: unknown names with their nearest match, and options as Python and commands write them."""

import difflib
from collections.abc import Iterable

_LISTED = 20


def unknown_name(kind: str, name: object, valid: Iterable[str], *, meant: str | None = None) -> str:
    """Return `Unknown <kind> 'name'. Did you mean 'nearest'? Valid: a, b, c.`

    Args:
        meant: the valid name that is probably meant, even if the spelling differs.
    """
    names = list(valid)
    close = [meant] if meant in names else difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    # The nearest, unless letters were only swapped: hpgo is as near to pgpo as to hgpo.
    nearest = max(close, key=lambda other: sorted(other) == sorted(str(name)), default=None)
    hint = f" Did you mean {nearest!r}?" if nearest else ""
    more = f", ... ({len(names)} in all)" if len(names) > _LISTED else ""
    valid_ones = f"Valid: {', '.join(names[:_LISTED])}{more}." if names else "There are none."
    return f"Unknown {kind} {str(name)!r}.{hint} {valid_ones}"


def option(name: str, value: str | None = None) -> str:
    """Return how an environment's option is set: `data=...` in Python, and its form in commands."""
    written = "..." if value is None else value
    return f"{name}={written if value is None else repr(value)} (in commands env.{name}={written})"
