"""Says hello."""


def words(name: str) -> str:
    return f"hello from {name}"
