"""Format bytes, numbers and seconds for people: three digits and a unit."""

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECONDS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
_NUMBERS = ("", " thousand", " million", " billion", " trillion")


def in_bytes(size: float) -> str:
    """Return a size as text: 1536 is 1.5 KiB."""
    return _scaled(size, 1024, tuple(f" {unit}" for unit in _BYTES))


def in_numbers(count: float) -> str:
    """Return a number as text: 120064 is 120 thousand."""
    return _scaled(count, 1000, _NUMBERS)


def in_seconds(seconds: float) -> str:
    """Return a time as text: 0.0123 is 12.3 ms."""
    for unit, length in _SECONDS:
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while value >= base and power < len(units) - 1:
        value /= base
        power += 1
    return f"{value:.3g}{units[power]}"
