"""Sizes of WGSL types in memory, by the language's layout rules (WGSL §14.4)."""

from __future__ import annotations

import re

__all__ = ["Layout", "attributes_in", "split"]

_SCALARS = {"f32": 4, "i32": 4, "u32": 4, "f16": 2, "bool": 4}
_SHORT = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
_ATTRIBUTE = re.compile(r"@(\w+)\s*(?:\(\s*([^)]*?)\s*,?\s*\))?")
_MEMBER = re.compile(r"((?:@\w+\s*(?:\([^)]*\))?\s*)*)\w+\s*:\s*(.+)", re.DOTALL)
_VECTOR = re.compile(r"(vec|mat([234])x)([234])(?:([fiuh])|\s*<\s*(\w+)\s*>)")
_NESTING = re.compile(r"(array|atomic)\s*<(.*)>", re.DOTALL)

Size = tuple[int | None, int]
"""Bytes and alignment; (None, 1) where they are not known."""
_UNKNOWN: Size = (None, 1)


def attributes_in(text: str) -> dict[str, str]:
    """Attributes of a declaration, with what stands in their parentheses."""
    return dict(_ATTRIBUTE.findall(text))


def split(text: str) -> list[str]:
    """A list of types, members or expressions at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


class Layout:
    """The types of a module: `aliases` by name, and the text of the bodies of its `structs`."""

    def __init__(self, aliases: dict[str, str], structs: dict[str, str]) -> None:
        self._aliases, self._structs = aliases, structs

    def scalar(self, type_: str) -> str:
        """The scalar at the bottom of an array, vector or atomic; "" for structs."""
        type_ = self._resolve(type_)
        vector, nesting = _VECTOR.fullmatch(type_), _NESTING.fullmatch(type_)
        if vector:
            return self.scalar(_SHORT.get(vector[4] or "", vector[5] or ""))
        if nesting:
            return self.scalar(next(iter(split(nesting[2])), ""))
        return type_ if type_ in _SCALARS else ""

    def measure(self, type_: str) -> Size:
        """The size and the alignment of a type in bytes; of a runtime-sized array, of one
        element."""
        type_ = self._resolve(type_)
        if type_ in _SCALARS:
            return _SCALARS[type_], _SCALARS[type_]
        vector, nesting = _VECTOR.fullmatch(type_), _NESTING.fullmatch(type_)
        if vector:
            size = _SCALARS.get(_SHORT.get(vector[4] or "", vector[5] or ""))
            return _UNKNOWN if size is None else _measure_vector(size, vector[2], int(vector[3]))
        if nesting:
            element, *count = split(nesting[2]) or [""]
            return self.measure(element) if nesting[1] == "atomic" else self._array(element, count)
        return self._struct(self._structs[type_]) if type_ in self._structs else _UNKNOWN

    def _array(self, element: str, count: list[str]) -> Size:
        size, align = self.measure(element)
        if size is None:
            return None, align
        number = re.fullmatch(r"(\d+)[ui]?", ",".join(count) or "1")
        return (-(-size // align) * align * int(number[1]) if number else None), align

    def _struct(self, body: str) -> Size:
        offset, largest = 0, 1
        for member in split(body):
            found = _MEMBER.fullmatch(member)
            size, align = self.measure(found[2]) if found else _UNKNOWN
            if found is None or size is None:
                return _UNKNOWN
            attributes = attributes_in(found[1])
            align = int(attributes.get("align", align))
            offset = -(-offset // align) * align + int(attributes.get("size", size))
            largest = max(largest, align)
        return -(-offset // largest) * largest, largest

    def _resolve(self, type_: str) -> str:
        type_ = type_.strip()
        for _ in range(16):
            if type_ not in self._aliases:
                break
            type_ = self._aliases[type_].strip()
        return type_


def _measure_vector(scalar: int, columns: str | None, rows: int) -> Size:
    """A vector of `rows` scalars, or a matrix of so many columns. Three take the room of four."""
    align = scalar * (4 if rows == 3 else rows)
    return (align * int(columns), align) if columns else (scalar * rows, align)
