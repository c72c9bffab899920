#!/usr/bin/env python3
"""Writes docs/figures.md from the figures' results in docs/results, the newest of each.
usage: scripts/figures.py [--check]"""
import glob
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# The figures of the DRILL article, in full

Written by `scripts/figures.py` (`make figures`) from the results that are kept; the short forms of all figures are run by
`weirgate fabric figure all --quick`. Ratios are over DRILL(2,1), where nothing else is said, with 95 % intervals over ten seeds; then the same
with four, or with ten for far quantiles, with what the article leaves open varied: the smallest retransmission timeout (200 ms, Linux 2.6's), a
TCP that learns how far packets overtake each other, and the buffer of a port (300 KB). "A plot": the article shows one and says no number.
Presto is with its shim, which puts packets in order before TCP sees them, as its authors have it, and nobody else has one (but for figure
11a, which counts what comes out of order, nobody has); what it changes is in the results (and for figure 6: without it Presto has 0.71 of the mean that it has with it).
Below that the same ratios with the other published distributions of flow sizes, of as many bytes. Each is of the commit that it names: before 1e6210b
hosts drew from one stream of random numbers and wires from another, so that the same seeds are other runs now; before 08b5445 what Presto's shim held back came up with the time of
the segment that released it, by which round trips were measured; before 599e371 Presto had no weights above the leaf.{missing}
"""
FIGURES = ["fig2", "fig3", "fig6", "fig7", "fig8", "fig9", "fig10", "fig11a", "fig11bc", "fig12", "fig13", "fig14", "engines", "ospf-delay",
           "table1", "newer"]
# What was found of a result after it was made, by its commit.
NOTES = {
    ("fig9", "1f4cea8"): "Why: 80 % of the uplinks' capacity is 80 % of the hosts' links' with 20 spines, 48 % with 12. With 20, 93 % of what DRILL's "
    "packets wait in switches is for the link to their host, where there is nothing to choose; with 12 half of it.",
    ("fig6", "d3a7735"): "Today's simulator (30936b8), by `fabric sweep` at 80 % load with ten seeds: ecmp 5.07 [4.82 to 5.34], conga 2.94 [2.78 to "
    "3.11], presto 2.36 [2.26 to 2.47] of the mean.",
    ("fig3", "61c953a"): "Twenty memories do harm here, too, where packets are unseen for longer: of the uplinks alone, where engines choose at the "
    "same time, DRILL(1,20) has 1.30 times DRILL(1,1)'s deviation with 100 ns and 3.36 times with 1,230 ns (of both 0.771 and 1.53). The two rules "
    "that the article leaves open, a remembered port taken on a tie and the same port drawn twice, change DRILL(2,1)'s deviation by 1 % at most. Its "
    "queues have the packet that is leaving in them, and the downlinks are among them, where there is nothing to choose.",
    ("fig11bc", "ae2868e"): "DRILL with a shim over DRILL without: alike there, 1.36 [1.31 to 1.40] here in the mean, 1.26 [1.25 to 1.27] in the "
    "median: of 10,000 flows timers run out 416 times with it and 294 times without. The article has Presto beside DRILL and the others behind "
    "both; here Presto is behind CONGA in the mean, too, and before ECMP. At 90 % load the leaf that has lost an uplink is asked for 1.18 times "
    "what the others carry, so that these means grow with the length of a run.",
    ("fig12", "1f4cea8"): "The article has CONGA beside DRILL and ECMP behind both. Here DRILL and ECMP are the same, packet by packet: with so many "
    "links down no symmetric component has two ports, and DRILL goes by the flow's hash everywhere. If all shortest ways have their share, the "
    "fullest link is asked at 90 % load for 1.15 to 3.04 times what it carries, by seed, and at 70 % for up to 2.36 times: these means grow with the length of a run.",
    ("fig2", "a86d3f0"): "Deviations with what is unseen for 100 and 1,230 ns were measured before what is on its way to a queue was left out of "
    "it: they are too large, all balancers' alike. What is seen at once, as in the table, is not touched by that.",
}
LESS = {("fig6", "ecmp, mean, 10 %"): "< 1.09"}
VARIANTS = ["min RTO 5 ms", "TCP learns of re-ordering", "buffer 100 KB", "buffer 900 KB"]


def tables(result, title):
    """Those of a title, with what is before it where a figure has several networks: `20 spines: `."""
    for table, lines in result.get("numbers", {}).items():
        before, found, rest = table.partition(title)
        if found and (not before or before.endswith(": ")):
            yield before, found + rest, lines


def newest():
    """Each figure's newest result: name, path, what is in it; the article's first."""
    found = {}
    for path in sorted(glob.glob(str(ROOT / "docs/results/*.json"))):
        result = json.loads(Path(path).read_text())
        if any(tables(result, "Ratios")):
            found[result["name"]] = (Path(path), result)
    number = lambda name: int("".join(c for c in name[3:] if c.isdigit())) if name.startswith("fig") else 99
    return sorted(found.items(), key=lambda item: (number(item[0]), item[0]))


def rows(result):
    for before, _, lines in tables(result, "Ratios"):
        for line in lines:
            what = line.get("over DRILL(2,1)", line.get(""))
            if what is None:
                continue
            load = f", {line['load, %']:g} %" if "load, %" in line else ""
            # Older results have the number of what the article calls less.
            article = LESS.get((result["name"], f"{what}{load}"), str(line["article"]))
            yield f"{before}{what}{load}", article, line["here"], {variant: line[variant] for variant in VARIANTS}


def distributions(result):
    """The same with the other distributions of flow sizes, a column for each."""
    for before, title, lines in tables(result, "Other distributions"):
        cells = {}
        for line in lines:
            name, what = next(value for key, value in line.items() if key.startswith("distribution")).split(", ", 1)
            cells.setdefault(what, {})[name] = line["ratio"]
        names = list(next(iter(cells.values()), {}))
        yield f"{before}{title}\n"
        yield "| | " + " | ".join(names) + " |"
        yield "|---" * (1 + len(names)) + "|"
        yield from ("| " + " | ".join([what, *by_name.values()]) + " |" for what, by_name in cells.items())
        yield ""


def bounds(cell):
    """Of `2.42 [2.31 to 2.55]`; None where no interval is known."""
    found = re.search(r"\[([0-9.]+) to ([0-9.]+)\]", cell)
    return tuple(map(float, found.groups())) if found else None


def is_contradicted(article, cell):
    """Whether all of the interval is beside the article's number, or on the other side of it."""
    interval, number = bounds(cell), re.fullmatch(r"([<>]?) ?([0-9.]+)", article)
    if not (interval and number):
        return False
    (low, high), sign, value = interval, number[1], float(number[2])
    return {"<": low >= value, ">": high <= value, "": not low <= value <= high}[sign]


ALL_VARIED = "So it does with all that is varied."


def of_all_varied(article, here, variants):
    """What is true of a number that all variations contradict."""
    sides = {bounds(cell)[0] > float(article) for cell in [here, *variants.values()] if bounds(cell)} if re.fullmatch(r"[0-9.]+", article) else set()
    return "What is varied leads to either side of the article's number." if len(sides) > 1 else ALL_VARIED


def differences(result):
    """Sentences of where it differs: its own, or, of a result that has none yet, those that its table says."""
    table = {what: (article, here, variants) for what, article, here, variants in rows(result)}
    if "differs" in result:
        own = lambda what: of_all_varied(*table[what]) if what in table else ALL_VARIED
        return [sentence.replace(ALL_VARIED, own(sentence.split(": ")[0])) for sentence in result["differs"]]
    said = []
    for what, (article, here, variants) in table.items():
        if is_contradicted(article, here):
            kept = [f"{name} ({cell})" for name, cell in variants.items() if bounds(cell) and not is_contradicted(article, cell)]
            why = f"Not so with {', '.join(kept)}." if kept else of_all_varied(article, here, variants)
            said.append(f"{what}: {article} there, {here} here. {why}")
    return said


def page():
    kept = dict(newest())
    missing = [name for name in FIGURES if name not in kept]
    out = [HEAD.format(missing=f" No result is kept of the full forms of {', '.join(missing)}." if missing else "")]
    for name, (path, result) in kept.items():
        out.append(f"## {result['title']}\n")
        out.append(f"`weirgate fabric figure {name}`, {result['date'][:10]}, {result['machine']['commit']}: [result](results/{path.name})\n")
        out.append("| | article | here | " + " | ".join(VARIANTS) + " |")
        out.append("|---" * (3 + len(VARIANTS)) + "|")
        for what, article, here, variants in rows(result):
            out.append("| " + " | ".join([what, article, f"**{here}**", *variants.values()]) + " |")
        out.append("")
        out.extend(distributions(result))
        said = differences(result)
        out.extend(f"- {sentence}" for sentence in said)
        if said:
            out.append("")
        note = NOTES.get((name, result["machine"]["commit"][:7]))
        if note:
            out.append(f"{note}\n")
        for expected in result["expectations"]:
            if not expected["holds"]:
                out.append(f"`{expected['name']}` is {expected['measured']:.3g}, not {expected['bound']}. {expected['explanation']}\n")
    return "\n".join(out).rstrip() + "\n"


if __name__ == "__main__":
    target = ROOT / "docs/figures.md"
    if "--check" not in sys.argv[1:]:
        target.write_text(page())
    elif target.read_text() != page():
        sys.exit("docs/figures.md is not what docs/results has: run scripts/figures.py")
