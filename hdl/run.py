#!/usr/bin/env python3
"""Tests hdl/*.v against balance and measures it: `hdl/run.py WEIRGATE`. Writes lab-out/hdl/result.json, which has to be what is kept of it;
`--keep` copies it to docs/results and its table into docs/hardware.md. Read first: docs/hardware.md.

- Lint: Verilator's warnings, but for some that are the style here.
- Vectors: `weirgate fabric vectors` writes stimulus and the picks of `balance`; Verilator and Icarus run the Verilog on them, clock by clock.
- Mutants: the same vectors notice each of a list of faults.
- Proofs: yosys' `sat`, for all inputs of small sizes.
- Area: hdl/area.py."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

import area

HDL = area.HDL
ROOT = HDL.parent
TEST = HDL / "test"
DOCS = ROOT / "docs/hardware.md"
SOURCES = sorted(HDL.glob("*.v"))
LINES_MAX = 400

# As many engines as the largest switch whose area is given, the first to be run since it takes longest.
CORNERS = [dict(N=48, D=2, M=1, E=48)]
# One engine, and every size of the article's that its hardware could have.
CORNERS += [dict(N=ports, D=d, M=m) for ports in (4, 48, 64) for d in (1, 2) for m in (0, 1, 2)]
# Several engines that share queues; more drawn than a word has numbers for; depths that reach their highest value; sizes that are no
# power of two; packets that are in their queue at once.
SHARED = dict(N=9, D=3, M=2, E=4, G=3, W=6, ENQUEUE=1)
CORNERS += [SHARED, dict(N=48, D=2, M=1, E=8), dict(N=48, D=2, M=1, E=12)]
# Many drawn, many remembered.
CORNERS += [dict(N=16, D=8, M=4), dict(N=64, D=4, M=3)]
# The least of everything; more engines than ports; depths and sizes of one bit; more looks than ports, one group.
CORNERS += [
    dict(N=2, D=1, M=1, E=1, G=1, W=4, S=2, ENQUEUE=1),
    dict(N=2, D=1, M=1, E=3, G=2, W=4, S=2, ENQUEUE=2),
    dict(N=2, D=2, M=2, E=2, G=2, W=1, S=1, ENQUEUE=1),
    dict(N=3, D=8, M=8, E=1, G=1, W=3, S=2, ENQUEUE=3),
]
DEFAULTS = dict(E=1, G=4, W=16, S=8, ENQUEUE=4)
OPTIONS = dict(N="ports", D="d", M="m", E="engines", G="groups", W="depth-bits", S="size-bits", ENQUEUE="enqueue")
COMPONENTS = [dict(C=4, B=16), dict(C=8, B=12), dict(C=2, B=5), dict(C=3, B=9)]

# Of each size, by simulator.
DECISIONS = dict(verilator=1_000_000, icarus=20_000)

# Faults that the vectors of SHARED, or of the first COMPONENTS, must notice: a file, what stands there, and what is wrong.
MUTANTS = [
    ("drill_look.v", "depth[i*W +: W] <= depth", "depth[i*W +: W] < depth"),
    ("drill_look.v", "is_seen[i] = 0;", "is_seen[i] = is_look[i];"),
    ("drill_look.v", "drawn[j*P +: P] == looks", "drawn[j*P +: P] != looks"),
    ("drill_engine.v", "is_same ? is_least4 : ", ""),
    ("drill_engine.v", "ask4 && group4 == group3", "ask4"),
    ("drill_engine.v", "forget3 || M == 0 ? 0 :", "M == 0 ? 0 :"),
    ("drill_engine.v", "if (reset || forget3)", "if (reset)"),
    ("drill_engine.v", "<= place) place = place + 1", "< place) place = place + 1"),
    ("drill_engine.v", "bound = count2 - i", "bound = count2"),
    ("drill_engine.v", "i%2 == 0 ? 16 : 0", "i%2 == 0 ? 0 : 16"),
    ("drill_engine.v", "swapped = sorted[j*P +: P];", "swapped = place;"),
    ("drill_engine.v", "is_drawn2[i] = count2 > i", "is_drawn2[i] = 1"),
    ("drill_place.v", "rest >= passed", "rest > passed"),
    ("drill_lfsr.v", "b[31:25] ^ b[29:23]", "b[31:25] ^ b[30:24]"),
    ("drill_depth.v", "(leaves && depth != 0)", "leaves"),
    ("drill_depth.v", "|sum[T-1:W] ? {W{1'b1}} : ", ""),
    ("drill_switch.v", "if (reset) masks <= 0;", ""),
    ("drill_switch.v", "if (reset) masks <= 0;", "if (reset) masks[0 +: N] <= 0;"),
    ("drill_switch.v", "& was_up", ""),
    ("drill_switch.v", "change || up != was_up", "change"),
    ("drill_switch.v", "change || up != was_up", "up != was_up"),
    ("drill_switch.v", "LAG = 4", "LAG = 3"),
    ("drill_switch.v", "LATENCY = 5", "LATENCY = 4"),
    ("drill_switch.v", ".CLOCKS(ENQUEUE+LAG-1)", ".CLOCKS(ENQUEUE+LAG)"),
    ("component_hash.v", "at >= ends", "at > ends"),
    ("component_hash.v", "own ^ own >> 33", "own"),
    ("component_hash.v", "second ^ second >> 33", "second"),
]
MUTANT_DECISIONS = 10_000

# What is drawn is the draw of five clocks, whatever is in the registers before; an engine runs six clocks of reset and fourteen more.
DRAWN, COURSES = "-seq 5 -prove-skip 4", "-tempinduct-baseonly -maxsteps 20"
# From any clock to the next.
INDUCTION = "-tempinduct -maxsteps 2"
PROOFS = [
    ("look_proof", {}, ""),
    ("look_proof", dict(N=8, D=2, M=1, W=4), ""),
    ("look_proof", dict(N=5, D=3, M=1, W=2), ""),
    ("place_proof", {}, ""),
    ("place_proof", dict(N=12), ""),
    ("draw_proof", dict(N=48, D=2), DRAWN),
    ("draw_proof", dict(N=5, D=3), DRAWN),
    ("draw_proof", dict(N=8, D=4), DRAWN),
    ("engine_proof", {}, COURSES),
    ("engine_proof", dict(D=2), COURSES),
    ("engine_proof", dict(M=2), COURSES),
    ("depth_proof", {}, INDUCTION),
    ("depth_proof", dict(E=3, W=2, S=4), INDUCTION),
    ("depth_proof", dict(E=5, W=4, S=2), INDUCTION),
]
# Faults with which a proof has to fail: each proves something.
UNPROVEN = [
    (PROOFS[0], "drill_look.v", "depth[i*W +: W] <= depth", "depth[i*W +: W] < depth"),
    (PROOFS[3], "drill_place.v", "rest >= passed", "rest > passed"),
    (PROOFS[6], "drill_engine.v", "bound = count2 - i", "bound = count2"),
    (PROOFS[7], "drill_engine.v", "<= place) place = place + 1", "< place) place = place + 1"),
    (PROOFS[8], "drill_engine.v", "is_same ? is_least4 : ", ""),
    (PROOFS[8], "drill_engine.v", "forget3 || M == 0 ? 0 :", "M == 0 ? 0 :"),
    (PROOFS[8], "drill_engine.v", "if (reset || forget3)", "if (forget3)"),
    (PROOFS[11], "drill_depth.v", "+ $clog2(E) + 1", "+ $clog2(E)"),
]

# Verilator's warnings that are no faults here: Verilog-2005 cuts off what is wider; counts and products of which a part is used; two
# modules in a file; outputs that are connected to nothing.
WAIVED = ("WIDTH", "UNUSEDSIGNAL", "DECLFILENAME", "PINCONNECTEMPTY")


def fail(why):
    sys.exit(f"hdl: {why}")


def call(*command, **options):
    """What a command prints, or an end that says what it printed."""
    try:
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    except OSError as problem:
        fail(f"{command[0]}: {problem.strerror}")
    if ran.returncode != 0:
        fail(f"{' '.join(map(str, command))}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.stdout


class Test:
    """One of both test benches with its parameters."""

    def __init__(self, bench, **parameters):
        self.bench = bench
        self.parameters = parameters if bench == "component_test" else DEFAULTS | parameters

    def name(self):
        return " ".join(f"{name}={value}" for name, value in self.parameters.items())

    def vectors(self, weirgate, count, seed, to):
        """Writes so many decisions, and says what else there is in them."""
        if self.bench == "component_test":
            sizes = ["components", "--components", self.parameters["C"], "--bits", self.parameters["B"], "--flows", count]
        else:
            sizes = ["switch", "--decisions", count]
            for name, value in self.parameters.items():
                sizes += [f"--{OPTIONS[name]}", value]
        said = call(weirgate, "fabric", "vectors", *sizes, "--json", "--seed", seed, "--out", to)
        summary = json.loads(said)
        # Several engines decide at once, so there may be some more.
        if not count <= summary["decisions"] < count + self.parameters.get("E", 1):
            fail(f"{self.bench} {self.name()}: {count} decisions were asked for: {said}")
        return summary

    def icarus(self, folder, sources=None):
        """A program that runs it."""
        built = folder / "test.vvp"
        parameters = [f"-P{self.bench}.{name}={value}" for name, value in self.parameters.items()]
        call("iverilog", "-g2005", "-s", self.bench, *parameters, "-o", built, *(sources or SOURCES), TEST / f"{self.bench}.v")
        return ["vvp", "-n", built]

    def verilator(self, folder):
        """The same, as a compiled program."""
        parameters = [f"-G{name}={value}" for name, value in self.parameters.items()]
        # Widths are as Verilog-2005 has them: what is wider is cut off, and bits stand for numbers. Most of the time is g++'s, which has to
        # compile Verilator's own part once only.
        call("verilator", "--binary", "--language", "1364-2005", "-Wno-WIDTH", "-Wno-fatal", "-O3", "-j", "1", "--top-module", self.bench,
             *parameters, "-Mdir", folder / "built", "-CFLAGS", "-O1", "-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0",
             *SOURCES, TEST / f"{self.bench}.v", env=os.environ | {"OBJCACHE": "ccache"})
        return [folder / "built" / f"V{self.bench}"]

    def run(self, program, vectors, count):
        """So many decisions have to be the same."""
        said = call(*program, f"+vectors={vectors}")
        line = next((line for line in said.splitlines() if line.startswith("same: ")), None)
        if line is None or int(line.split()[1]) != count:
            fail(f"{self.bench} {self.name()}: {said[-500:]}")


def check_lint():
    """Nothing that Verilator warns of, but for what is waived; and no size that is none."""
    for top in ("drill_switch", "component_hash"):
        call("verilator", "--lint-only", "-Wall", "--language", "1364-2005", *(f"-Wno-{name}" for name in WAIVED), "--top-module", top, *SOURCES)
    # Sizes that are none are refused by what simulates and what synthesises, by name.
    sources = " ".join(map(str, SOURCES))
    with tempfile.TemporaryDirectory() as folder:
        # Not the null device: Icarus makes its output executable, whatever that is.
        built = Path(folder) / "refused.vvp"
        none = [("drill_switch", name, 0) for name in ("N", "E", "D", "W", "G", "S", "ENQUEUE")] + [("drill_switch", "N", 1), ("drill_switch", "N", 65)]
        for top, name, value in (*none, ("component_hash", "C", 0), ("component_hash", "C", 1), ("component_hash", "B", 0)):
            commands = [["iverilog", "-g2005", "-s", top, f"-P{top}.{name}={value}", "-o", built, *SOURCES],
                        ["yosys", "-q", "-p", f"read_verilog {sources}; chparam -set {name} {value} {top}; hierarchy -check -top {top}"]]
            for command in commands:
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
                if ran.returncode == 0 or "_has_to_be_" not in ran.stdout + ran.stderr:
                    fail(f"{command[0]} does not refuse {top} with {name} = {value}: {(ran.stdout + ran.stderr)[-500:]}")
    print("hdl: no warnings; sizes that are none are refused", flush=True)


def check_vectors(weirgate, test, seed):
    """Runs a test by each simulator."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        result = dict(test.parameters)
        for simulator, count in DECISIONS.items():
            vectors = folder / "vectors"
            result[simulator] = test.vectors(weirgate, count, seed, vectors)
            test.run(getattr(test, simulator)(folder), vectors, result[simulator]["decisions"])
    ran = ", ".join(f"{simulator} {result[simulator]['decisions']:,}" for simulator in DECISIONS)
    print(f"hdl: {test.bench}: {test.name()}: the same ports as balance: {ran}", flush=True)
    return result


def mutant_test(name):
    """Of a file's faults."""
    return Test("component_test", **COMPONENTS[0]) if name == "component_hash.v" else Test("switch_test", **SHARED)


def mutated(folder, name, right, wrong):
    """The sources with a fault in one of them, which is written to a folder."""
    text = (HDL / name).read_text()
    if text.count(right) != 1:
        fail(f"{name} has not one `{right}`: the list of mutants is out of date")
    mutant = Path(folder) / name
    mutant.write_text(text.replace(right, wrong))
    return [mutant if source.name == name else source for source in SOURCES]


def check_mutant(vectors, name, right, wrong):
    """A fault is noticed."""
    test = mutant_test(name)
    with tempfile.TemporaryDirectory() as folder:
        sources = mutated(folder, name, right, wrong)
        if "same: " in call(*test.icarus(Path(folder), sources), f"+vectors={vectors / test.bench}"):
            fail(f"{name} with `{wrong}` in place of `{right}` is not noticed by {MUTANT_DECISIONS:,} decisions")


def proof_of(sources, top, parameters, options):
    """The command that proves the assertions of a module."""
    proof = TEST / f"{top}.v"
    # Random numbers are any; and a proof may have a module of its own in place of one.
    replaced = ["component_hash", "drill_lfsr", *(source.stem for source in SOURCES if f"module {source.stem} " in proof.read_text())]
    sources = " ".join(str(source) for source in sources if source.stem not in replaced)
    sizes = "".join(f"chparam -set {name} {value} {top}; " for name, value in parameters.items())
    return ["yosys", "-q", "-p", f"read_verilog -formal {sources} {TEST / 'any_lfsr.v'} {proof}; {sizes}hierarchy -top {top}; proc; flatten; "
            f"opt; sat -verify -prove-asserts -set-assumes {options}"]


def check_proof(top, parameters, options):
    """Proves the assertions of a module."""
    call(*proof_of(SOURCES, top, parameters, options))
    name = " ".join([top, *(f"{name}={value}" for name, value in parameters.items()), options]).strip()
    print(f"hdl: {name}: proven", flush=True)
    return name


def check_unproven(proof, name, right, wrong):
    """With a fault, a proof fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = proof_of(mutated(folder, name, right, wrong), *proof)
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode == 0 or "proof did fail" not in ran.stdout + ran.stderr:
        fail(f"{proof[0]} does not fail with `{wrong}` in place of `{right}` in {name}: {(ran.stdout + ran.stderr)[-500:]}")


def kept():
    """The newest result that is kept."""
    results = sorted((ROOT / "docs/results").glob("*-hdl.json"))
    return json.loads(results[-1].read_text()) if results else fail("docs/results has no result of hdl: make hdl")


MARKS = ("<!-- made by hdl/run.py --keep -->\n", "<!-- end -->\n")


def documented():
    """What stands before, in and after the table in docs/hardware.md."""
    before, rest = DOCS.read_text().split(MARKS[0])
    table, after = rest.split(MARKS[1])
    return before, table, after


def check_kept(measured):
    """The table is that of the kept result, and that is one of this Verilog: what was `measured` now is the same there."""
    result = kept()["area"]
    if documented()[1] != area.table(result):
        fail("the table in docs/hardware.md is not that of the newest docs/results/*-hdl.json: make hdl")
    if area.tool() != result["tool"]:
        print(f"hdl: not compared with docs/hardware.md, whose numbers are by {result['tool']}: this is {area.tool()}", flush=True)
    elif measured != result:
        other = ", ".join(what for what in measured if measured[what] != result.get(what))
        fail(f"the kept result is of other Verilog: make hdl ({other})")
    else:
        print("hdl: what was measured is what docs/hardware.md says", flush=True)


def expectations(result):
    """The article's bounds, by our assumptions."""
    most = result["area"]["switch"][-1]
    bounds = [("lines", result["lines"], LINES_MAX)]
    sizes = [f"{nm}_nm" for nm in area.TARGETS_NM]
    bounds += [(f"{most['engines']}_engines_pct_of_chip_{size}", most["all"][size]["share_pct"], 1) for size in sizes]
    return [dict(name=name, measured=measured, bound=f"< {bound}", holds=measured < bound) for name, measured, bound in bounds]


def keep(result, file):
    """Puts a result where it is kept."""
    shutil.copy(file, ROOT / f"docs/results/{result['date'][:10]}-hdl.json")
    before, _, after = documented()
    DOCS.write_text(before + MARKS[0] + area.table(result["area"]) + MARKS[1] + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weirgate", type=Path, help="the program that writes vectors")
    parser.add_argument("--keep", action="store_true", help="keep the result: docs/results, docs/hardware.md")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="sizes, faults and proofs that are run at once")
    options = parser.parse_args()
    begun = time.monotonic()
    commit = call("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    if options.keep and commit.endswith("-dirty"):
        fail("what is kept names its commit: commit first")
    print(f"hdl: seed {options.seed}", flush=True)

    lines = sum(len(source.read_text().splitlines()) for source in SOURCES)
    if lines >= LINES_MAX:
        fail(f"{lines} lines of Verilog: the article's has less than {LINES_MAX}")
    tests = [Test("switch_test", **corner) for corner in CORNERS] + [Test("component_test", **sizes) for sizes in COMPONENTS]
    check_lint()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        for name in ("drill_switch.v", "component_hash.v"):
            test = mutant_test(name)
            test.vectors(options.weirgate, MUTANT_DECISIONS, options.seed, Path(folder) / test.bench)
        # The longest first.
        mapped = [pool.submit(area.synthesise, **design) for design in area.DESIGNS.values()]
        corners = [pool.submit(check_vectors, options.weirgate, test, options.seed) for test in tests]
        mutants = [pool.submit(check_mutant, Path(folder), *mutant) for mutant in MUTANTS]
        proofs = [pool.submit(check_proof, *proof) for proof in PROOFS]
        unproven = [pool.submit(check_unproven, *fault) for fault in UNPROVEN]
        try:
            for done in as_completed(chain(mapped, corners, mutants, proofs, unproven)):
                done.result()
        except BaseException:
            # What has not begun need not.
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        mapped = dict(zip(area.DESIGNS, (done.result() for done in mapped)))
        corners, proofs = [done.result() for done in corners], [done.result() for done in proofs]
    print(f"hdl: all of {len(mutants)} faults are noticed, and {len(unproven)} by proofs", flush=True)
    measured = json.loads(json.dumps(area.measure(mapped)))
    result = {
        "name": "hdl",
        "title": "DRILL in Verilog: the same ports as balance, its area and its longest path",
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seed": options.seed,
        "commit": commit,
        "lines": lines,
        "versions": area.versions(),
        "seconds": round(time.monotonic() - begun),
        "vectors": corners,
        "mutants": len(mutants),
        "proofs": proofs,
        "proofs_that_fail_with_a_fault": len(unproven),
        "area": measured,
    }
    result["expectations"] = expectations(result)
    file = ROOT / "lab-out/hdl/result.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")
    print(area.table(measured), end="")
    for expectation in result["expectations"]:
        print("hdl: {name}: {measured}, {bound}: {verdict}".format(verdict="holds" if expectation["holds"] else "DOES NOT HOLD", **expectation))
    if not all(expectation["holds"] for expectation in result["expectations"]):
        fail("an expectation does not hold")
    if options.keep:
        keep(result, file)
    else:
        check_kept(measured)
    print(f"hdl: {file}")


if __name__ == "__main__":
    main()
