// Compression: what each engine made of the responses of processes that have libweirgate_z.so, and why one had another's. Not there
// where nothing compresses.

import type { Deflate, Engine, Fallback } from "./api";
import { byId, h, say } from "./dom";
import { bytes, plain, integer, micros, UNKNOWN } from "./format";

const HEADS = [
  { title: "Engine", about: null },
  { title: "Bodies", about: "Of all processes, those that have ended included, from each one's first on" },
  { title: "Bodies/s", about: "Since the last refresh" },
  { title: "Taken in", about: "Bytes before compression, since the last refresh" },
  { title: "Ratio", about: "Bytes before over bytes after compression, of all bodies" },
  { title: "Time per body", about: "Mean by the clock" },
];

/** Why a body's chosen engine did not have it, as docs/api.md says. */
const REASONS = new Map([
  ["flush", "Output was asked for before the end of the body: zlib compressed it piece by piece"],
  ["slow", "The pieces of the body came slowly, and it was not held back: zlib compressed it piece by piece"],
  ["long", "The body is longer than what is collected: zlib compressed it piece by piece"],
  ["asked", "Only zlib has the level, strategy, dictionary or header that was asked for, or there was nothing to compress"],
  ["failed", "The chosen engine failed: another one had the body"],
  ["gone", "The accelerator is not there: another engine had the body"],
  ["exhausted", "All instances of the accelerator were others': another engine had the body"],
  ["late", "The accelerator did not answer in time: another engine had the body"],
  ["wrong", "What the accelerator answered was not this body: another engine had it"],
  ["paused", "The accelerator has failed and is not asked for a while: another engine had the body"],
  ["larger", "The chosen engine's output was looked at and was larger than zlib's by more than is allowed: zlib's was sent"],
]);

/** The answer before this one, by the server's clock: rates are what came between the two. */
let before: { now_ms: number; engines: Map<string, Engine> } | null = null;

export function showCompression(now: Deflate): void {
  const last = before;
  before = { now_ms: now.now_ms, engines: new Map(now.engines.map((engine) => [engine.name, engine])) };
  const used = now.engines.filter((engine) => engine.bodies + engine.bytes_in + engine.bytes_out > 0);
  byId("compression").hidden = now.processes === 0 && used.length === 0;
  const rows = used.map((engine) => line(engine, last?.engines.get(engine.name), now.now_ms - (last?.now_ms ?? 0)));
  const heads = HEADS.map(({ title, about }, n) => h("th", { scope: "col", class: n > 0 ? "number" : null, title: about }, title));
  byId("compression-table").replaceChildren(
    h("thead", {}, h("tr", {}, ...heads)),
    h("tbody", {}, ...(rows.length > 0 ? rows : [nothing()])),
  );
  const instances = now.instances > 0 ? `; instances of an accelerator in use: ${integer(now.instances)}` : "";
  say(byId("compression-processes"), `Processes that compress (one that was killed, for a minute more): ${integer(now.processes)}${instances}`);
  byId("compression-fallbacks").replaceChildren(...fallbacks(now.fallbacks));
}

function line(engine: Engine, last: Engine | undefined, ms: number): HTMLTableRowElement {
  // Counts that are less than they were are another daemon's.
  const perSecond = (count: (engine: Engine) => number) => {
    if (last === undefined || ms <= 0 || count(engine) < count(last)) return null;
    return ((count(engine) - count(last)) * 1_000) / ms;
  };
  const taken = perSecond((e) => e.bytes_in);
  const number = (text: string) => h("td", { class: "number" }, text);
  return h(
    "tr",
    { "data-engine": engine.name },
    h("th", { scope: "row" }, engine.name),
    number(integer(engine.bodies)),
    number(plain(perSecond((e) => e.bodies))),
    number(taken === null ? UNKNOWN : `${bytes(taken)}/s`),
    number(engine.bytes_out > 0 ? (engine.bytes_in / engine.bytes_out).toFixed(2) : UNKNOWN),
    number(micros(engine.us > 0 && engine.bodies > 0 ? engine.us / engine.bodies : null)),
  );
}

function nothing(): HTMLTableRowElement {
  return h("tr", { class: "empty" }, h("td", { colspan: HEADS.length }, "Nothing has been compressed yet."));
}

/** Reasons with their counts, each with its explanation. */
function fallbacks(all: Fallback[]): (Node | string)[] {
  const some = all.filter((fallback) => fallback.count > 0);
  const reasons = some.flatMap(({ reason, count }, n) => [
    n > 0 ? ", " : "",
    h("span", { class: "reason", "data-fallback": reason, title: REASONS.get(reason) ?? null }, `${reason} ${integer(count)}`),
  ]);
  return ["Left to another engine: ", ...(reasons.length > 0 ? reasons : ["none"])];
}
