"""Area and longest path of hdl/*.v, by yosys and abc with the Liberty of OSU's 0.18 um cells (Debian: qflow-tech-osu018), and what that would
be at 45 and 28 nm. Read first: docs/hardware.md, which says what these numbers do and do not mean."""

import re
import subprocess
import tempfile
from pathlib import Path

HDL = Path(__file__).parent
LIBERTY = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
FEATURE_NM = 180
# Our assumptions: the article says neither of which chip its share is, nor for which process its area.
CHIP_MM2 = 200
TARGETS_NM = (45, 28)
# The article's: Ghorbani et al., "DRILL" (SIGCOMM 2017), section 4, "Hardware and deployability considerations".
ARTICLE = {"mm2": 0.04, "share": "< 1 %", "lines": "< 400"}
# NAND2_X1 of Nangate's open library for FreePDK45: how far off the square of the feature size is.
NAND2_45NM_UM2 = 0.798
# Maps for speed, with what is not critical made smaller again, puts buffers in, and chooses sizes of gates.
ABC = "+strash;ifraig;scorr;dc2;strash;dch,-f;map,-B,0.9;topo;buffer,-p;upsize;dnsize;stime,-p"
# What comes to a module comes from flip-flops, and what leaves it goes to them: without this, abc takes them to be as strong as is needed.
# It knows gates only; this buffer may drive 0.976 pF, DFFPOSX1 0.968. The load is that of its D, in fF.
CONSTRAINTS = "set_driving_cell BUFX2\nset_load 8.83\n"
# Kept apart, so that each is mapped once and counted for itself.
PARTS = ("drill_engine", "drill_depth", "component_mix")
ENGINES = (1, 12, 48)
PORTS = 48
# What is mapped, what takes longest first. Engines once, since in each design abc maps the same engine a little differently; and once more,
# within a switch, which says how differently.
AGAIN = "engine in a switch"
DESIGNS = {f"{engines} engines": dict(top="drill_switch", elsewhere=["drill_engine"], N=PORTS, E=engines) for engines in reversed(ENGINES)}
DESIGNS |= {AGAIN: dict(top="drill_switch", N=PORTS)}
DESIGNS |= dict(engine=dict(top="drill_engine", N=PORTS), component_hash=dict(top="component_hash"), look=dict(top="drill_look", N=PORTS))


def nand2_um2():
    """The area of the smallest NAND gate of two inputs."""
    return float(re.search(r"cell \(NAND2X1\) \{\s*area : ([\d.]+);", LIBERTY.read_text()).group(1))


def synthesise(top, elsewhere=(), **parameters):
    """Cells, um2 and the longest path of a module and its parts, but for those that are mapped elsewhere."""
    script = [f"read_verilog {' '.join(str(file) for file in sorted(HDL.glob('*.v')))}"]
    script += [f"chparam -set {name} {value} {top}" for name, value in parameters.items()]
    script += [f"hierarchy -top {top}"]
    script += [f"blackbox *{part}*" for part in elsewhere]
    script += [f"setattr -mod -set keep_hierarchy 1 *{part}*" for part in PARTS if part not in elsewhere]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints"
        constraints.write_text(CONSTRAINTS)
        script += [
            f"synth -flatten -top {top}",
            f"dfflibmap -liberty {LIBERTY}",
            f"abc -liberty {LIBERTY} -constr {constraints} -script {ABC}",
            "opt_clean",
            f"stat -liberty {LIBERTY}",
        ]
        file = Path(folder) / "script.ys"
        file.write_text("\n".join(script))
        ran = subprocess.run(["yosys", "-s", file], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"yosys: {top}: {ran.stdout[-2000:]}{ran.stderr}")
    return read(ran.stdout)


def read(log):
    """What yosys and abc say of a design's modules."""
    paths = {}
    for part in re.split(r"Extracting gate netlist of module `", log)[1:]:
        delay = re.search(r"Delay = *([\d.]+) ps", part)
        ends = re.search(r"Start-point = \S+ \((.*?)\)\.  End-point = \S+ \((.*?)\)\.", part)
        if delay and ends:
            # Of the two mappings of a module, the last one is that to real cells.
            paths[part.split("'")[0].lstrip("\\")] = [float(delay.group(1)) / 1000, *map(register, ends.groups())]
    parts = {}
    for section in re.split(r"^=== ", log, flags=re.M)[1:]:
        name = section.split(" ===")[0]
        area = re.search(r"Chip area for (?:top )?module '.*': ([\d.]+)", section)
        if not area or name == "design hierarchy":
            continue
        kinds = {kind: int(count) for kind, count in re.findall(r"^     (\S+) +(\d+)$", section, flags=re.M)}
        inside = {kind.split("\\")[-1]: count for kind, count in kinds.items() if kind.split("\\")[-1] in PARTS}
        ns, start, end = paths.get(name, [None, None, None])
        parts[name.split("\\")[-1]] = sized(float(area.group(1))) | {
            "cells": sum(kinds.values()) - sum(inside.values()),
            "flip_flops": sum(count for kind, count in kinds.items() if kind.startswith("DFF")),
            "parts": inside,
            "path_ns": ns and round(ns, 3),
            "path_from": start,
            "path_to": end,
        }
    return parts


def register(signal):
    """The name of a signal's register, without its bit: none where yosys made the name."""
    return None if signal.startswith("$") else signal.lstrip("\\").split(" [")[0]


def sized(um2):
    return {"um2": um2, "nand2": round(um2 / nand2_um2())}


def total(parts, top):
    """A module and its parts."""
    counts = parts[top]["parts"] | {top: 1}
    of_all = {what: sum(count * parts[part][what] for part, count in counts.items()) for what in ("cells", "flip_flops", "um2")}
    return of_all | sized(of_all["um2"])


def scaled(um2):
    """What so much would be elsewhere: the area by the square of the feature size."""
    sizes = {}
    for nm in TARGETS_NM:
        mm2 = um2 * 1e-6 * (nm / FEATURE_NM) ** 2
        sizes[f"{nm}_nm"] = {"mm2": round(mm2, 7), "share_pct": round(100 * mm2 / CHIP_MM2, 6)}
    return sizes


def version(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(" (")[0].split("\n")[0]


def tool():
    """Whose numbers these are."""
    return version("yosys", "-V")


def versions():
    """Of the tools that are used here and in run.py."""
    return dict(yosys=tool(), verilator=version("verilator", "--version"), icarus=version("iverilog", "-V"))


def measure(mapped):
    """Everything, from what DESIGNS are mapped to."""
    engine = mapped["engine"]["drill_engine"]
    designs = []
    for engines in ENGINES:
        parts = mapped[f"{engines} engines"] | {"drill_engine": engine}
        depth, rest = parts["drill_depth"], parts["drill_switch"]
        of_all = total(parts, "drill_switch")
        # From a register through two parts go what comes to a queue, into its depth, and a group's ports, into whether it has any: a
        # multiplexer and an OR, which is shorter. The longest of each part need not meet, so their sum is an upper bound.
        into_depth_ns = round(rest["path_ns"] + depth["path_ns"], 3)
        designs.append({
            "engines": engines,
            "ports": PORTS,
            "parts": {"drill_depth": depth, "drill_switch": rest},
            "all": of_all | scaled(of_all["um2"]),
            "into_depth_ns_at_most": into_depth_ns,
            "path_ns_at_most": max(engine["path_ns"], into_depth_ns),
            "engines_alone": sized(engine["um2"] * engines) | scaled(engine["um2"] * engines),
        })
    component = mapped["component_hash"]
    return {
        "tool": tool(),
        "cells_of": "osu018, typical, 1.8 V, 25 degrees",
        "nand2_um2": nand2_um2(),
        "assumed_chip_mm2": CHIP_MM2,
        "article": ARTICLE,
        "engine": engine,
        "engine_again": mapped[AGAIN]["drill_engine"],
        "look": mapped["look"]["drill_look"],
        "switch": designs,
        "component_hash": {"parts": component, "all": total(component, "component_hash")},
    }


def table(area):
    """The table of docs/hardware.md."""
    def path(part):
        ends = [f", {word} `{part[f'path_{word}']}`" for word in ("from", "to") if part[f"path_{word}"]]
        return f"{part['path_ns']:.2f} ns" + "".join(ends).replace(", to", " to")

    heads = ["engines, 48 ports", "cells", "flip-flops", "um2 at 180 nm", "NAND2", "longest path"]
    heads += [f"mm2 at {nm} nm, of 200 mm2" for nm in TARGETS_NM]
    rows = []

    def row(name, cells, flip_flops, um2, longest):
        sizes = scaled(um2)
        row = [name, f"{cells:,}", f"{flip_flops:,}", f"{um2:,.0f}", f"{um2 / area['nand2_um2']:,.0f}", longest]
        row += [f"{sizes[f'{nm}_nm']['mm2']:.4f}, {sizes[f'{nm}_nm']['share_pct']:.3f} %" for nm in TARGETS_NM]
        rows.append(row)

    engine = area["engine"]
    for design in area["switch"]:
        count, every = design["engines"], design["all"]
        name = "1 engine alone" if count == 1 else f"{count} engines alone"
        row(name, *(engine[what] * count for what in ("cells", "flip_flops", "um2")), path(engine))
        bound = design["into_depth_ns_at_most"]
        longest = path(engine) if bound < engine["path_ns"] else f"{bound:.2f} ns at most, into a depth"
        row(f"{count}, with depths and groups", every["cells"], every["flip_flops"], every["um2"], longest)
    component = area["component_hash"]["parts"]
    for name, part in [("component hash", "component_hash"), ("... and the mixing of a flow's hash", "component_mix")]:
        row(name, *(component[part][what] for what in ("cells", "flip_flops", "um2")), path(component[part]))
    lines = ["| " + " | ".join(cells) + " |" for cells in [heads, ["---"] * len(heads), *rows]]
    one, again, look, most = engine["um2"] / area["nand2_um2"], area["engine_again"], area["look"], area["switch"][-1]
    change = 100 * again["um2"] / engine["um2"] - 100
    by_size = [f"{ns * TARGETS_NM[-1] / FEATURE_NM:.2f}" for ns in
               (engine["path_ns"], most["path_ns_at_most"], component["component_mix"]["path_ns"])]
    of_article = [f"{ARTICLE['mm2'] / size['mm2']:.1f} engines alone at {nm} nm" for nm, size in zip(TARGETS_NM, scaled(engine["um2"]).values())]
    lines += [
        "",
        f"The article's is {ARTICLE['mm2']} mm2, {ARTICLE['share']} of a chip. It names neither process nor chip; that is as much as "
        f"{' or '.join(of_article)}.",
        "",
        f"Mapped within a switch, the same engine comes out {abs(change):.1f} % {'smaller' if change < 0 else 'larger'}, its longest path "
        f"{again['path_ns']:.2f} ns.",
        "",
        f"By the NAND2 of Nangate's open library, {NAND2_45NM_UM2} um2, instead of the square of the feature size, an engine is "
        f"{one * NAND2_45NM_UM2 * 1e-6:.4f} mm2 at 45 nm.",
        "",
        f"`drill_look.v` alone, which every engine needs that compares depths, is {look['cells']:,} cells, {look['um2']:,.0f} um2, "
        f"{path(look)}: an engine is {engine['um2'] / look['um2']:.1f} times that.",
        "",
        f"Scaled by the feature size, the longest path would be {by_size[0]} ns at {TARGETS_NM[-1]} nm in an engine, "
        f"{by_size[1]} ns at most with the depths of {most['engines']} engines, and {by_size[2]} ns in the mixing.",
    ]
    return "\n".join(lines) + "\n"
