"""Numbers in words, for people."""

__all__ = ["plural", "size"]


def plural(count: int, noun: str) -> str:
    """A number of things: `1 file`, `2,000 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """A number of bytes: `812 bytes`, `3.1 KB`, `40 MB`."""
    if count < 1024:
        return plural(count, "byte")
    amount, unit = count / 1024, "KB"
    for larger in ("MB", "GB"):
        if amount >= 1024:
            amount, unit = amount / 1024, larger
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
