"""Which binding a client's `Accept` admits (PB-1), by RFC 9110's rules for media ranges."""

from collections.abc import Iterable

__all__ = ["admits"]


def admits(accept: Iterable[str], media_type: str) -> bool:
    """Whether `Accept` headers admit a media type with a quality above zero.

    The most specific range that matches decides; ranges of equal specificity, the best of
    them. What is malformed is passed over. No header admits nothing: a client that can read a
    binding has to say so.
    """
    main, _, sub = media_type.lower().partition("/")
    best = (0, 0.0)
    for item in ",".join(accept).split(","):
        kind, _, parameters = item.partition(";")
        kind = kind.strip().lower()
        if kind == f"{main}/{sub}":
            specificity = 3
        elif kind == f"{main}/*":
            specificity = 2
        elif kind == "*/*":
            specificity = 1
        else:
            continue
        quality = _quality(parameters)
        if quality is not None:
            best = max(best, (specificity, quality))
    return best[1] > 0


def _quality(parameters: str) -> float | None:
    """The `q` among a range's parameters, 1 without one, None for a malformed one."""
    for parameter in parameters.split(";"):
        name, sign, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                quality = float(value.strip()) if sign else -1.0
            except ValueError:
                return None
            return quality if 0 <= quality <= 1 else None
    return 1.0
