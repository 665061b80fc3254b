"""Numbers in words, for messages."""


def counted(n: int, noun: str) -> str:
    """``n`` of something in words: "1 rank", "2 ranks"."""
    return f"{n} {noun}{'s' * (n != 1)}"
