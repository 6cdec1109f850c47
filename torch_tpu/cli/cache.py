"""``torch-tpu cache``: compiled programs on disk."""

import json
import os
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from torch_tpu import _C
from torch_tpu._keys import changes, nearest

_SUFFIX = ".executable"


def _folder() -> str:
    settings = _C.cache_settings()
    if settings["off"]:
        raise click.ClickException(f"nothing is kept on disk: {settings['off']}.")
    return settings["folder"]


def _megabytes(n: float) -> str:
    return f"{n / 1e6:.1f} MB"


def _entries(folder: str) -> list[dict]:
    """The folder's entries, last used first, with what they say of themselves, or what is wrong with them."""
    entries = _C.cache_entries(folder)
    for entry in entries:
        try:
            entry |= {"error": ""} | _read(Path(entry["path"]).read_bytes(), entry["digest"])
        except (OSError, ValueError) as error:
            entry |= {"error": str(error), "key": {}, "compile_seconds": 0.0}
    return entries


def _read(data: bytes, digest: str) -> dict:
    found = _C.cache_read(data)
    if found["digest"] != digest:
        raise ValueError("it is of another program")
    return {"key": dict(found["parts"]), "compile_seconds": found["compile_seconds"]}


def _name(key: dict[str, str]) -> str:
    """A program in a few words: its first calls, and how many there are."""
    calls = [c.removeprefix("aten::") for c in key.get("calls", "").split(", ")]
    return ", ".join(calls[:3]) + (f", … ({len(calls)} kinds in a row)" if len(calls) > 3 else "")


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} seconds ago"


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Compiled programs on disk: where they are, how large, and whether this plugin's can be kept."""
    if ctx.invoked_subcommand is not None:
        return
    settings = _C.cache_settings()
    entries = [] if settings["off"] else _C.cache_entries(settings["folder"])
    found = {
        "folder": settings["folder"] or "none",
        "state": f"off: {settings['off']}" if settings["off"] else "on",
        "read-only folder": settings["overlay"] or "none",
        "entries": len(entries),
        "bytes": sum(e["bytes"] for e in entries),
        "limit": settings["limit"],
    }
    refusal = _C.cache_probe()
    found["plugin"] = f"cannot keep its programs: {refusal}" if refusal else "can keep its programs"
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    table = Table(show_header=False)
    for name, value in found.items():
        table.add_row(name, _megabytes(value) if name in ("bytes", "limit") else str(value))
    Console().print(table)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """The programs, last used first: size, seconds their compilation took, when they were used."""
    entries = _entries(_folder())
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    table = Table("entry", "MB", "compiled in", "used", "calls")
    for e in entries:
        name = f"damaged: {e['error']}" if e["error"] else _name(e["key"])
        seconds = f"{e['compile_seconds']:.2f} s"
        table.add_row(e["digest"][:12], f"{e['bytes'] / 1e6:.2f}", seconds, _ago(time.time() - e["used"]), name)
    Console().print(table)


@command.command()
def verify() -> None:
    """Checks every entry. Exits with 1 if some are damaged; they are compiled again when they are needed."""
    entries = _entries(_folder())
    damaged = [e for e in entries if e["error"]]
    for e in damaged:
        click.echo(f"{e['path']}: {e['error']}")
    click.echo(f"{len(entries)} entries, {len(damaged)} damaged")
    if damaged:
        raise SystemExit(1)


@command.command()
@click.option("--to", "limit", type=click.FloatRange(min=0), help="MB to leave. Default: the cache's bound.")
def prune(limit: float | None) -> None:
    """Removes what was used longest ago."""
    folder = _folder()
    removed = _C.cache_prune(folder, _C.cache_settings()["limit"] if limit is None else int(limit * 1e6))
    click.echo(f"removed {_megabytes(removed)} from {folder}")


@command.command()
def clear() -> None:
    """Removes every entry."""
    folder = _folder()
    click.echo(f"removed {_megabytes(_C.cache_prune(folder, -1))} from {folder}")


@command.command()
@click.argument("bundle", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--within", type=float, metavar="HOURS", help="Only what was used in the last HOURS.")
def export(bundle: Path, within: float | None) -> None:
    """Writes the entries to a zip file BUNDLE, to warm other machines up. Damaged ones are left out."""
    since = 0 if within is None else time.time() - within * 3600
    chosen = [e for e in _entries(_folder()) if not e["error"] and e["used"] >= since]
    unfinished = bundle.with_name(bundle.name + ".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as file:
        for e in chosen:
            file.write(e["path"], e["digest"] + _SUFFIX)
    os.replace(unfinished, bundle)
    click.echo(f"{len(chosen)} entries, {_megabytes(bundle.stat().st_size)}: {bundle}")


def _members(bundle: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(bundle) as file:
        for member in file.infolist():
            # Its size once unpacked: no entry that the cache wrote is larger than the cache.
            if member.file_size > _C.cache_settings()["limit"]:
                raise click.ClickException(f"{member.filename} of {bundle} is larger than TORCH_TPU_CACHE_SIZE.")
            yield member.filename, file.read(member)


@command.command("import")
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_(bundle: Path) -> None:
    """Takes the entries of BUNDLE, from `torch-tpu cache export`. Each is checked; none is run.

    Programs are machine code: import only bundles of people whose code you would run.
    """
    folder = _folder()
    taken, refused, mine = 0, 0, dict(_C.cache_process_parts())
    useless = 0
    try:
        for name, data in _members(bundle):
            try:
                found = _read(data, name.removesuffix(_SUFFIX))
            except ValueError as error:
                refused += 1
                click.echo(f"{name}: {error}")
                continue
            useless += any(found["key"].get(part) != value for part, value in mine.items())
            _C.cache_write(folder, data)
            taken += 1
    except zipfile.BadZipFile as error:
        raise click.ClickException(f"{bundle} is no bundle: {error}.") from error
    click.echo(f"{taken} entries taken, {refused} refused; {useless} are for another plugin, processor or device")
    if refused:
        raise SystemExit(1)


@command.command()
@click.argument("entry", required=False)
@click.option("--last", default=10, show_default=True, help="How many, where no ENTRY is named.")
def explain(entry: str | None, last: int) -> None:
    """Why programs were compiled: what differs from the nearest one that was there before.

    ENTRY is the beginning of an entry's name, as `list` shows it.
    """
    entries = sorted((e for e in _entries(_folder()) if not e["error"]), key=lambda e: e["made"])
    chosen = [e for e in entries if e["digest"].startswith(entry)] if entry else entries[-last:]
    if not chosen:
        raise click.ClickException(f"no entry begins with {entry}." if entry else "there are no entries.")
    for e in chosen:
        click.echo(f"{e['digest'][:12]}  {_name(e['key'])}")
        before = nearest(e["key"], (o["key"] for o in entries[: entries.index(e)]))
        if before is None:
            click.echo("    nothing like it was there before")
            continue
        for change in changes(before, e["key"]):
            click.echo(f"    {change}")
