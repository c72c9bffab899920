// The software switch: what each limit passes, holds and drops, and its ports. Not there where no limit is configured.

import type { Limit, Port, Switch } from "./api";
import { byId, h, say } from "./dom";
import { integer, micros, percent, rate, UNKNOWN } from "./format";

/** The answer before this one, by the server's clock: rates are what came between the two. */
let before: { now_ms: number; passed: Map<string, Limit> } | null = null;

export function showLimits(now: Switch): void {
  byId("limits").hidden = now.limits.length === 0;
  const last = before;
  before = { now_ms: now.now_ms, passed: new Map(now.limits.map((limit) => [limit.name, limit])) };
  const heads = ["Limit", "Rate", "Passing", "Held back", "Waiting", "Half waited", "99 % waited", "Dropped", "Marked"];
  const rows = now.limits.map((limit) => line(limit, last?.passed.get(limit.name), now.now_ms - (last?.now_ms ?? 0)));
  byId("limits-table").replaceChildren(
    h("thead", {}, h("tr", {}, ...heads.map((head, n) => h("th", { scope: "col", class: n > 1 ? "number" : null }, head)))),
    h("tbody", {}, ...rows),
  );
  const failed = now.ports.filter((port) => port.failed !== null).length;
  say(byId("limits-note"), `${integer(now.ports.length)} ports${failed > 0 ? `, ${integer(failed)} of them failed` : ""}`);
  byId("port-list").replaceChildren(...now.ports.map(port));
}

function line(limit: Limit, last: Limit | undefined, ms: number): HTMLTableRowElement {
  const since = (count: (limit: Limit) => number) => {
    if (last === undefined || ms <= 0 || count(limit) < count(last)) return null;
    return (count(limit) - count(last)) / ms;
  };
  const bytes = since((l) => l.passed_bytes);
  const held = since((l) => l.throttled_ms);
  const dropped = limit.dropped_rate + limit.dropped_room + limit.dropped_codel;
  const why =
    `${integer(limit.dropped_rate)} came too early, ${integer(limit.dropped_room)} found no room, ` +
    `${integer(limit.dropped_codel)} by CoDel`;
  const number = (text: string, title: string | null = null) => h("td", { class: "number", title }, text);
  return h(
    "tr",
    { "data-limit": limit.name },
    h("th", { scope: "row" }, limit.name),
    h("td", {}, `${rate(limit.rate_bits_per_s)} of ${limit.layer}, ${limit.mode}`),
    number(bytes === null ? UNKNOWN : rate(bytes * 8_000), "Since the last refresh"),
    number(held === null ? UNKNOWN : percent(Math.min(held, 1)), "Share of the time in which something waited for it"),
    number(integer(limit.waiting), "Packets"),
    number(micros(limit.delay_p50_us)),
    number(micros(limit.delay_p99_us)),
    number(integer(dropped), why),
    number(integer(limit.marked), "Packets marked with congestion (ECN)"),
  );
}

function port(port: Port): HTMLLIElement {
  const dropped = port.lost + port.malformed + port.refused + port.unsent;
  const frames = `${integer(port.received)} frames in, ${integer(port.sent)} out, ${integer(dropped)} dropped`;
  const text = port.failed === null ? frames : `failed: ${port.failed}`;
  return h("li", { "data-port": port.name, class: port.failed === null ? null : "bad" }, h("b", {}, port.name), ` (${port.kind}): ${text}`);
}
