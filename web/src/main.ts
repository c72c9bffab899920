// The page: reads /api/v1 every few seconds while somebody looks, and shows what it read, its age, and nothing else.

import "./style.css";

import { read, type Decisions, type Deflate, type History, type Networks, type Status, type Switch } from "./api";
import { Charts } from "./charts";
import { showCompression } from "./compression";
import { DECISIONS, showDecisions, showRound } from "./decisions";
import { byId, say } from "./dom";
import { clock, span } from "./format";
import { showLimits } from "./limits";
import { NetworkTable } from "./networks";
import { showNotices, showStatus } from "./overview";

/** The shortest poll interval that makes sense is a second or two; reading costs the daemon under a millisecond. */
const REFRESH_MS = 3_000;
/** A slot of the history is 10 s. */
const HISTORY_EVERY = 3;
/** A poll so many intervals old is stale: one may be under way, one late. */
const STALE_INTERVALS = 3;

let status: Status | null = null;
/** The server's clock minus ours, so that ages are right where the two differ. */
let skew = 0;
let answered = 0;
let failure: string | null = null;
let turn = 0;
let timer: ReturnType<typeof setTimeout> | undefined;
let reading = false;

const table = new NetworkTable(byId("networks-table"), () => void refresh());
const charts = new Charts();

function range(): string {
  return document.querySelector<HTMLInputElement>("input[name=range]:checked")?.value ?? "hour";
}

async function readHistory(): Promise<void> {
  charts.show(await read<History>(`history?range=${range()}`));
}

async function refresh(): Promise<void> {
  // One at a time: a slow answer is waited for, not asked for again.
  if (reading) return;
  reading = true;
  clearTimeout(timer);
  try {
    const { sort, rows } = table;
    const [now, networks, decisions, limits, deflate] = await Promise.all([
      read<Status>("status"),
      read<Networks>(`networks?sort=${sort}&limit=${rows}`),
      read<Decisions>(`decisions?limit=${DECISIONS}`),
      read<Switch>("limits"),
      read<Deflate>("deflate"),
      turn % HISTORY_EVERY === 0 ? readHistory() : null,
    ]);
    turn += 1;
    status = now;
    answered = Date.now();
    skew = now.now_ms - answered;
    failure = null;
    showStatus(now);
    table.show(networks);
    showDecisions(decisions, now);
    showRound(now);
    showLimits(limits);
    showCompression(deflate);
    document.documentElement.dataset["loaded"] = String(turn);
    // Other rows were asked for while the answer was on its way.
    if (sort !== table.sort || rows !== table.rows) queueMicrotask(() => void refresh());
  } catch (error) {
    failure = explain(error);
  } finally {
    reading = false;
    showAge();
    timer = setTimeout(() => void refresh(), REFRESH_MS);
  }
}

function explain(error: unknown): string {
  const since = answered === 0 ? "" : ` What is shown is from ${clock(answered, Date.now())}.`;
  const text = error instanceof Error ? error.message : String(error);
  const network = error instanceof TypeError || (error instanceof DOMException && error.name === "TimeoutError");
  const what = network ? "The daemon does not answer; trying again." : `The daemon refused: ${text}.`;
  return `${what}${since}`;
}

/** How old the numbers are, said beside the title; old ones are greyed. */
function showAge(): void {
  showNotices(status, failure);
  const element = byId("freshness");
  const { text, state } = freshness();
  say(element, text);
  element.dataset["state"] = state;
  document.documentElement.classList.toggle("stale", state === "failed");
}

function freshness(): { text: string; state: string } {
  if (failure !== null) return { text: "no answer", state: "failed" };
  if (status === null) return { text: "connecting", state: "waiting" };
  if (status.poll === null) return { text: "first poll under way", state: "waiting" };
  const age = Date.now() + skew - status.poll.time_ms;
  const late = age > STALE_INTERVALS * Math.max(status.facts.poll_interval_ms, 1_000);
  return { text: `${late ? "stale: " : ""}polled ${span(age)} ago`, state: late ? "late" : "live" };
}

for (const choice of document.querySelectorAll("input[name=range]")) {
  choice.addEventListener("change", () => void readHistory().catch((error: unknown) => (failure = explain(error))));
}
// Nobody looks: nothing is read.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
  } else {
    turn = 0;
    void refresh();
  }
});
setInterval(showAge, 1_000);
void refresh();
