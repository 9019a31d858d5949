"""The figures and paths of a netlist as text, and as the table of docs/rtl.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .summary import AIM, CHAINS, DEEP, FAN_OUT, LUTS, SCALES, Path, Summary, plain

NAMES = 25  # of a list


def lines(summary: Summary, paths: int, timed: bool) -> Iterator[str]:
    """Yield the report; without times if the family is not ``timed``."""
    if timed:
        for scale in SCALES:
            yield from slowest(summary, scale, paths if scale == SCALES[1] else 1)
    yield from levels(summary)
    yield from listed(f"more than {DEEP} levels", [summary.name(end) for end in summary.deep])
    work = [summary.name(end) for end in summary.beyond if not summary.is_once(end)]
    once = [summary.name(end) for end in summary.beyond if summary.is_once(end)]
    yield from listed(f"more than {CHAINS} carry chain or {LUTS} look-up tables, in work", work)
    yield from listed("the same, once a Task or register access", once)
    yield "resets by pins:"
    for count, name, driver in summary.resets[:10]:
        yield f"  {count:7,} {name} (driver: {driver}){' too many' if count > FAN_OUT else ''}"
    yield "DSPs:"
    for registers, count in summary.dsps.most_common():
        yield f"  {count:7,} {', '.join(registers)}"
    yield f"{len(summary.ports):,} read ports of block RAMs, those whose data more than registers take:"
    bare = Counter(plain(summary.netlist.name(port.nets[0])) for port in summary.ports if not port.registers)
    yield from (f"  {count:7,} {name}" for name, count in bare.most_common(NAMES))


def slowest(summary: Summary, scale: float, count: int) -> Iterator[str]:
    """Yield the slowest paths at a scale of the nets, the first one with each of its cells."""
    times = [time for time, _ in summary.times(scale)]
    slow = sum(time > AIM for time in times)
    yield f"nets x {scale}: worst {times[0]:.2f} ns; {slow:,} of {len(times):,} ends beyond {AIM} ns"
    for number, path in enumerate(summary.slowest(scale, count)):
        yield f"  {path.time:6.2f} ns {route(summary, path)}"
        if not number and count > 1:
            for way in path.ways:
                fan_out = summary.netlist.fan_out[way.target]
                yield f"            {way.cell.kind}.{way.arc.pin}, then to {fan_out}: {summary.netlist.name(way.target)}"


def route(summary: Summary, path: Path) -> str:
    """Return where a path begins and ends, and what is between."""
    begin = summary.netlist.name(path.ways[0].source if path.ways else path.end.net)
    luts = sum(way.arc.luts for way in path.ways)
    chains = sum(way.arc.chains for way in path.ways)
    widest = max([summary.netlist.fan_out[way.source] for way in path.ways] + [summary.netlist.fan_out[path.end.net]])
    end = f"{summary.name(path.end)} ({path.end.pin.cell.kind}.{path.end.pin.name})"
    return f"{begin} -> {end}: {luts} LUTs, {chains} chains, fan-out {widest:,}"


def levels(summary: Summary) -> Iterator[str]:
    """Yield how many ends have how many levels before them."""
    columns = sorted({chains for _, chains in summary.by_levels})
    yield "ends by most look-up tables (rows) and carry chains (columns):"
    yield "        " + "".join(f"{chains:9}" for chains in columns)
    for luts in sorted({luts for luts, _ in summary.by_levels}):
        yield f"{luts:8}" + "".join(f"{summary.by_levels[luts, chains]:9,}" for chains in columns)


def listed(title: str, names: list[str]) -> Iterator[str]:
    """Yield names with how often each comes, most first."""
    counts = Counter(plain(name) for name in names)
    yield f"{title}: {len(names):,}"
    yield from (f"  {count:7,} {name}" for name, count in counts.most_common(NAMES))
    if len(counts) > NAMES:
        yield f"          and {len(counts) - NAMES} others"


def table(summary: Summary, name: str, timed: bool) -> str:
    """Return the figures of an overlay in Markdown."""
    figures = summary.figures
    rows: dict[str, str] = {}
    if timed:
        rows |= {f"slowest path, nets x {scale} (ns)": f"{summary.times(scale)[0][0]:.1f}" for scale in SCALES}
        rows[f"ends beyond {AIM} ns, nets x {SCALES[1]}"] = f"{figures['slow']:,}"
    rows |= {
        "ends of paths": f"{figures['ends']:,}",
        f"beyond {DEEP} levels": f"{figures['deep']:,}",
        "most levels": f"{figures['deepest']:,}",
        f"beyond {CHAINS} carry chain and {LUTS} LUTs": f"{figures['beyond']:,}",
        "of these in the work of each cycle": f"{figures['beyond in work']:,}",
        "most pins of a reset": f"{figures['reset pins']:,}",
        "read ports of block RAMs": f"{figures['read ports']:,}",
        "of these without an output register": f"{figures['read ports without register']:,}",
    }
    return f"| {name} | |\n|---|---|\n" + "".join(f"| {figure} | {value} |\n" for figure, value in rows.items())
