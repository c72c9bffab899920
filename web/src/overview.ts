// Everything that there is one of: the header, the tiles, problems, sources and losses.

import type { Losses, Source, Status } from "./api";
import { byId, h, say } from "./dom";
import { clock, integer, micros, percent, rate, span, UNKNOWN } from "./format";

export function showStatus(status: Status): void {
  const { facts, totals } = status;
  // Before the first poll nothing is known, and zero would be a claim.
  const known = status.poll !== null;
  const count = (value: number): [string, number | null] => (known ? [integer(value), value] : [UNKNOWN, null]);
  const place = [facts.host, facts.pop, facts.kernel === "" ? "" : `Linux ${facts.kernel}`].filter((part) => part !== "");
  say(byId("host"), place.join(" · "));
  document.title = facts.host === "" ? "Weirgate" : `${facts.host} · Weirgate`;
  const mode = byId("mode");
  mode.hidden = facts.mode === "";
  mode.dataset["mode"] = facts.mode;
  mode.title = facts.mode === "apply" ? "Decisions are applied" : "Decisions are shown, nothing is changed";
  say(mode, facts.mode);
  say(byId("version"), `Weirgate ${facts.version}, running for ${span(status.now_ms - facts.started_ms)}`);

  const tiles = byId("tiles");
  tiles.dataset["poll"] = String(status.poll?.number ?? 0);
  tiles.replaceChildren(
    tile("connections", "Connections", ...count(totals.connections), connectionsNote(status)),
    tile("goodput", "Goodput", rate(totals.goodput_bits_per_s), totals.goodput_bits_per_s, goodputNote(status)),
    tile("retransmits", "Sent again", percent(totals.retransmit_share), totals.retransmit_share, "of all bytes sent"),
    tile("networks", "Client networks", ...count(totals.networks), "with open connections"),
    tile("policy", "Selected", ...policyTile(status)),
    lossTile(status),
  );
  byId("source-list").replaceChildren(...sources(status));
  byId("losses-table").replaceChildren(...losses(status));
}

function tile(id: string, title: string, text: string, value: number | null, note: string, bad = false): HTMLElement {
  return h(
    "div",
    { class: bad ? "tile bad" : "tile", "data-tile": id, "data-value": String(value) },
    h("h3", {}, title),
    h("p", { class: "figure" }, text),
    h("p", { class: "quiet" }, note),
  );
}

function connectionsNote({ totals, poll }: Status): string {
  if (poll === null) return "the first poll is under way";
  return `${integer(totals.accepted)} accepted, ${integer(totals.connected)} opened here`;
}

function goodputNote({ totals, poll }: Status): string {
  if (totals.goodput_bits_per_s === null) return "known from the second poll on";
  return `over the last ${span(poll?.interval_ms ?? 0)}, ${integer(totals.sending)} sending`;
}

function policyTile({ policy, totals, now_ms }: Status): [string, number | null, string] {
  if (policy === null) return [UNKNOWN, null, "no policy yet"];
  const count = `${integer(policy.networks)}`;
  if (!policy.applied) return [count, policy.networks, `policy ${policy.version}, shown only`];
  const left = policy.expires_ms === null ? "" : `, expires in ${span(policy.expires_ms - now_ms)}`;
  const arms = `${integer(totals.treated)} treated, ${integer(totals.holdout)} held out`;
  return [count, policy.networks, `${arms}; policy ${policy.version}${left}`];
}

/** Places where something was lost. They count different things, so that only their number is summed. */
function lossTile({ losses, facts }: Status): HTMLElement {
  const places = PLACES.filter((place) => place.lost && place.count(losses) > 0);
  const counted = facts.closes.counted;
  const [only, ...more] = places;
  if (only && more.length === 0) {
    const count = only.count(losses);
    return tile("losses", "Lost", integer(count), count, only.short, true);
  }
  const note =
    places.length > 0
      ? places.map((place) => `${integer(place.count(losses))} ${place.short}`).join(", ")
      : counted
        ? "nothing, every close counted"
        : "nothing known; closes are uncounted";
  const kinds = places.length;
  return tile("losses", "Lost", kinds === 0 ? "0" : `${kinds} kinds`, kinds, note, kinds > 0);
}

interface Place {
  id: string;
  title: string;
  short: string;
  /** Whether a number above zero means that something was lost. */
  lost: boolean;
  count: (losses: Losses) => number;
}

const PLACES: Place[] = [
  { id: "closes_seen", title: "Closes the kernel program saw", short: "closes seen", lost: false, count: (l) => l.closes_seen },
  { id: "closes_kept", title: "Close records kept", short: "closes kept", lost: false, count: (l) => l.closes_kept },
  {
    id: "close_ring_failures",
    title: "Closes for which the ring had no room",
    short: "closes without room",
    lost: true,
    count: (l) => l.close_ring_failures,
  },
  {
    id: "vanished",
    title: "Connections gone without a close record",
    short: "connections vanished",
    lost: true,
    count: (l) => l.vanished - l.recovered,
  },
  {
    id: "untracked",
    title: "Samples without room to follow their connection",
    short: "samples untracked",
    lost: true,
    count: (l) => l.untracked,
  },
  {
    id: "without_identity",
    title: "Samples without an identity",
    short: "samples anonymous",
    lost: true,
    count: (l) => l.without_identity,
  },
  {
    id: "poll_lost",
    title: "Samples skipped by the kernel or unreadable",
    short: "samples unread",
    lost: true,
    count: (l) => l.poll_lost,
  },
  { id: "poll_failures", title: "Polls that failed", short: "polls failed", lost: true, count: (l) => l.poll_failures },
  {
    id: "store_lost",
    title: "Records the store could not keep",
    short: "records not stored",
    lost: true,
    count: (l) => l.store_lost,
  },
  {
    id: "export_lost",
    title: "Records for Kafka that could not be kept until they were sent",
    short: "records not sent",
    lost: true,
    count: (l) => l.export_lost,
  },
];

function losses({ losses }: Status): HTMLElement[] {
  const rows = PLACES.map((place) => {
    const value = place.count(losses);
    const bad = place.lost && value > 0;
    return h(
      "tr",
      { "data-loss": place.id, "data-value": value, class: bad ? "bad" : null },
      h("th", { scope: "row" }, place.title),
      h("td", { class: "number" }, integer(value)),
    );
  });
  return [h("caption", {}, "Since the daemon started"), h("tbody", {}, ...rows)];
}

function sources({ facts, poll, totals, now_ms, policy }: Status): HTMLElement[] {
  const entry = (id: string, title: string, source: Source, note: string): HTMLElement[] => [
    h("dt", {}, title),
    h(
      "dd",
      { "data-source": id },
      h("strong", {}, source.name === "" ? UNKNOWN : source.name),
      source.why === "" ? null : h("span", {}, source.why),
      note === "" ? null : h("span", { class: "quiet" }, note),
    ),
  ];
  const last =
    poll === null
      ? ""
      : `poll ${integer(poll.number)} took ${micros(poll.took_us)}; every ${span(facts.poll_interval_ms)}; ` +
        `${integer(totals.poll_records)} records`;
  const closes = `${facts.closes.counted ? "counts what it loses" : "does not count what it loses"}; ` +
    `${integer(totals.close_records)} records`;
  const applied =
    policy === null
      ? ""
      : `policy ${policy.version} since ${clock(policy.since_ms, now_ms)}; ${percent(policy.holdout_share)} of clients held ` +
        `out; a response is switched after ${integer(policy.switch_after_bytes)} B`;
  return [
    ...entry("polls", "Polls", facts.polls, last),
    ...entry("closes", "Closes", facts.closes, closes),
    ...entry("steering", "Policy", facts.steering, applied),
    ...entry("default_cc", "Default", { name: facts.default_cc, why: "", counted: true }, "congestion control where nothing is decided"),
    ...entry("store", "Store", { name: facts.store === "" ? "off" : facts.store, why: "", counted: true }, ""),
  ];
}

/** What is wrong, the daemon's own problems and the page's; then what is only to be known. */
export function showNotices(status: Status | null, failure: string | null): void {
  const notices = byId("notices");
  const problems = status?.problems ?? [];
  const bad = failure === null ? problems : [failure, ...problems];
  const texts = [...bad, ...(status?.notices ?? [])];
  const shown = [...notices.children].map((child) => child.textContent);
  // A live region is read out when it changes, so it changes only when it must.
  if (shown.length === texts.length && shown.every((text, at) => text === texts[at])) return;
  notices.replaceChildren(...texts.map((text, at) => h("p", { class: at < bad.length ? "notice bad" : "notice" }, text)));
}
