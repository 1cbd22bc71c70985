"""The tree of errors is the one that is drawn."""

from __future__ import annotations

import re

from webtune import errors


def drawn() -> dict[str, str]:
    """Each class of the picture with the one that it hangs from."""
    above: list[tuple[int, str]] = []
    parents = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}([ │├└─]*)([A-Z]\w+)(?:  | \(|$)", line)
        if found:
            depth = len(found[1]) // 4
            above = [(level, name) for level, name in above if level < depth]
            parents[found[2]] = above[-1][1] if above else ""
            above.append((depth, found[2]))
    return parents


def test_every_error_hangs_where_it_is_drawn() -> None:
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    picture = drawn()
    assert {name for name, parent in picture.items() if parent} == set(classes)
    for name, error in classes.items():
        assert error.__bases__[0].__name__ == picture[name]
