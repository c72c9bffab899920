// The table of client networks. The server sorts, since it has all networks and the page only the first of them.

import type { Network, Networks } from "./api";
import { byId, h, say } from "./dom";
import { integer, micros, percent, rate, UNKNOWN } from "./format";

interface Column {
  title: string;
  /** What the column is, for those who rest the pointer on it. */
  about: string;
  /** The order to ask the server for; null where it cannot sort by this. */
  sort: string | null;
  text: (row: Network) => string | Node;
  /** The number behind the text, for tests and for copying. */
  value?: (row: Network) => number | null;
  kind: string;
}

const COLUMNS: Column[] = [
  { title: "Network", about: "The client's /24 or /56", sort: "name", kind: "name", text: (n) => n.name },
  {
    title: "Connections",
    about: "Open now",
    sort: "connections",
    kind: "number",
    text: (n) => integer(n.connections),
    value: (n) => n.connections,
  },
  {
    title: "Goodput",
    about: "Bytes acknowledged for the first time, between the last two polls",
    sort: "goodput",
    kind: "number",
    text: (n) => rate(n.goodput_bits_per_s),
    value: (n) => n.goodput_bits_per_s,
  },
  {
    title: "Delivery rate",
    about: "Mean over connections with data in flight that the application does not limit",
    sort: null,
    kind: "number",
    text: (n) => rate(n.delivery_rate_bits_per_s),
    value: (n) => n.delivery_rate_bits_per_s,
  },
  {
    title: "RTT",
    about: "Mean of the smoothed round-trip times",
    sort: "rtt",
    kind: "number",
    text: (n) => micros(n.rtt_us),
    value: (n) => n.rtt_us,
  },
  {
    title: "Sent again",
    about: "Bytes retransmitted of all bytes sent, between the last two polls",
    sort: "retransmits",
    kind: "number",
    text: (n) => percent(n.retransmit_share),
    value: (n) => n.retransmit_share,
  },
  {
    title: "Congestion control",
    about: "In use now, by connections",
    sort: null,
    kind: "cc",
    text: (n) => mix(n),
  },
  {
    title: "Decision",
    about: "The last one on this network; the reason is below",
    sort: null,
    kind: "decision",
    text: (n) => (n.decision === null ? UNKNOWN : h("span", { class: "what" }, n.decision)),
  },
];

/** Rows before somebody asks for more, and after. */
const ROWS_FEW = 15;
const ROWS_MANY = 200;

export class NetworkTable {
  /** What the rows are sorted by, by the server. */
  sort = "goodput";
  /** How many rows are asked for. */
  rows = ROWS_FEW;
  private readonly more = byId<HTMLButtonElement>("networks-more");
  private readonly body = h("tbody");
  private readonly heads = new Map<string, HTMLTableCellElement>();

  /** `onChange` is called when other rows are wanted. */
  constructor(table: HTMLElement, onChange: () => void) {
    const heads = COLUMNS.map((column) => {
      const head = h("th", { scope: "col", class: column.kind, title: column.about });
      const { sort } = column;
      if (sort === null) {
        head.append(column.title);
        return head;
      }
      const button = h("button", { type: "button" }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }));
      button.addEventListener("click", () => {
        this.sort = sort;
        this.mark();
        onChange();
      });
      head.append(button);
      this.heads.set(sort, head);
      return head;
    });
    this.more.addEventListener("click", () => {
      this.rows = this.rows === ROWS_FEW ? ROWS_MANY : ROWS_FEW;
      onChange();
    });
    table.replaceChildren(h("thead", {}, h("tr", {}, ...heads)), this.body);
    this.mark();
  }

  show(document: Networks): void {
    const rows = document.other === null ? document.networks : [...document.networks, document.other];
    this.body.replaceChildren(...(rows.length > 0 ? rows.map(line) : [nothing(document)]));
    byId("networks").dataset["poll"] = String(document.poll);
    const shown = document.networks.length;
    const many = document.total > shown ? `the first ${integer(shown)} of ${integer(document.total)}` : integer(shown);
    say(byId("networks-note"), shown > 0 ? `${many} with connections or closes, at poll ${document.poll}` : "");
    this.more.hidden = document.total <= ROWS_FEW;
    const most = Math.min(document.total, ROWS_MANY);
    say(this.more, this.rows === ROWS_FEW ? `Show ${document.total > most ? "the first" : "all"} ${integer(most)}` : "Show fewer");
    const ccs = document.congestion_controls.map((cc) => `${cc.name} ${integer(cc.connections)}`);
    say(byId("ccs"), ccs.length > 0 ? `Connections by congestion control: ${ccs.join(", ")}` : "");
  }

  private mark(): void {
    for (const [sort, head] of this.heads) {
      const order = sort === "name" ? "ascending" : "descending";
      head.setAttribute("aria-sort", sort === this.sort ? order : "none");
    }
  }
}

function line(row: Network): HTMLTableRowElement {
  const cells = COLUMNS.map((column) => {
    const value = column.value?.(row);
    const data = value === undefined ? null : String(value);
    const tag = column.kind === "name" ? "th" : "td";
    return h(tag, { class: column.kind, scope: tag === "th" ? "row" : null, "data-value": data }, column.text(row));
  });
  const treated = row.treated > 0 ? ` (${integer(row.treated)} treated, ${integer(row.holdout)} held out)` : "";
  const title = `${integer(row.accepted)} accepted, ${integer(row.connected)} opened here, ${integer(row.sending)} sending${treated}`;
  return h("tr", { "data-network": row.name, title }, ...cells);
}

function nothing(document: Networks): HTMLTableRowElement {
  const text = document.poll === 0 ? "The first poll is not done yet." : "No open connections at the last poll.";
  return h("tr", { class: "empty" }, h("td", { colspan: COLUMNS.length }, text));
}

/** Congestion controls in use: one name, or names with their counts. */
function mix(row: Network): string {
  const { congestion_controls: ccs } = row;
  if (ccs.length === 0) return UNKNOWN;
  if (ccs.length === 1) return ccs[0]?.name ?? UNKNOWN;
  return ccs.map((cc) => `${cc.name} ${integer(cc.connections)}`).join(", ");
}
