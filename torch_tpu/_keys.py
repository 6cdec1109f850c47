"""Compares the keys of compiled programs, lists of named parts: which one is nearest, and what differs, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Their values are lists, of which only the elements that differ are worth showing.
_LISTS = {"calls": "call", "inputs": "input", "results": "result"}
_SHOWN = 3


@dataclass(frozen=True)
class Change:
    """A part of a key that changed: its name, with the position where it is a list, and the two values."""

    part: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.part}: {self.before or 'nothing'} → {self.after or 'nothing'}"


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
    """What differs from ``before`` to ``after``; empty if they are the same program."""
    found = []
    for part in dict.fromkeys([*before, *after]):
        old, new = before.get(part, ""), after.get(part, "")
        if old == new or part == "text":
            continue
        if part in _LISTS:
            found += _list_changes(_LISTS[part], _elements(old), _elements(new))
        elif part == "processor":
            old_words, new_words = set(old.split()), set(new.split())
            found.append(Change(part, _sorted(old_words - new_words), _sorted(new_words - old_words)))
        else:
            found.append(Change(part, old, new))
    if not found and before.get("text") != after.get("text"):
        found.append(Change("text", "the same calls and types", "with other views, flags or dimensions"))
    return found


def nearest(key: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> Mapping[str, str] | None:
    """The key of ``others`` that has most in common with ``key``, the last of several; None if nothing is alike."""
    best, best_score = None, (0, 0)
    for other in others:
        same_calls = _common(_elements(key.get("calls", "")), _elements(other.get("calls", "")))
        if not same_calls:
            continue
        same_types = sum(
            a == b
            for part in ("inputs", "results")
            for a, b in zip(_elements(key.get(part, "")), _elements(other.get(part, "")), strict=False)
        )
        same_parts = sum(other.get(name) == value for name, value in key.items() if name not in _LISTS)
        score = (same_calls, same_types + same_parts)
        if score >= best_score:
            best, best_score = other, score
    return best


def _elements(text: str) -> list[str]:
    return text.split(", ") if text else []


def _sorted(words: set[str]) -> str:
    return " ".join(sorted(words))


def _common(a: list[str], b: list[str]) -> float:
    """How much of two lists is the same at their starts and ends, from 0 to 1."""
    longest = max(len(a), len(b))
    if longest == 0:
        return 0
    shortest = min(len(a), len(b))
    start = next((i for i in range(shortest) if a[i] != b[i]), shortest)
    rest = shortest - start
    end = next((i for i in range(rest) if a[-1 - i] != b[-1 - i]), rest)
    return (start + end) / longest


def _list_changes(name: str, before: list[str], after: list[str]) -> list[Change]:
    if len(before) != len(after):
        at = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
        )
        found = [Change(f"number of {name}s", str(len(before)), str(len(after)))]
        return found + [Change(f"{name} {at}", "".join(before[at : at + 1]), "".join(after[at : at + 1]))]
    different = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    found = [Change(f"{name} {i}", before[i], after[i]) for i in different[:_SHOWN]]
    if len(different) > _SHOWN:
        found.append(Change(f"more {name}s", "", f"{len(different) - _SHOWN} others changed too"))
    return found
