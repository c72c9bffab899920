// Percentiles and sums over time. Every chart says in words what it shows last, so that nobody needs to see the lines.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import type { History, Percentiles } from "./api";
import { byId, h, say } from "./dom";
import { integer, micros, percent, rate } from "./format";

type Value = number | null;

interface Series {
  label: string;
  /** The name of a colour in style.css. */
  color: string;
  width: number;
}

interface Chart {
  id: string;
  title: string;
  about: string;
  text: (value: Value) => string;
  /** What to say before there is anything, and where there was nothing of the kind. */
  early?: string;
  none?: string;
  log: boolean;
  series: Series[];
  /** Seconds, then one array per series. */
  data: (history: History) => [number[], ...Value[][]];
}

const PERCENTILES: Series[] = [
  { label: "p90", color: "--line-faint", width: 1.25 },
  { label: "p50", color: "--line", width: 2 },
  { label: "p10", color: "--accent-line", width: 2 },
  { label: "p5", color: "--accent-faint", width: 1.25 },
];

const points = (history: History): number[] => history.points.map((point) => point.time_ms / 1000);
const rounds = (history: History): number[] => history.rounds.map((round) => round.time_ms / 1000);

function spread(of: (Percentiles | null)[], unit = 1): Value[][] {
  // A logarithmic axis has no place for zero.
  const pick = (key: "p5" | "p10" | "p50" | "p90") => of.map((p) => (p === null || p[key] === 0 ? null : p[key] * unit));
  return [pick("p90"), pick("p50"), pick("p10"), pick("p5")];
}

const CHARTS: Chart[] = [
  {
    id: "delivery-rate",
    title: "Delivery rate",
    about: "connections with data in flight that the application does not limit, each poll",
    none: "No poll met such a connection.",
    text: rate,
    log: true,
    series: PERCENTILES,
    data: (x) => [points(x), ...spread(x.points.map((p) => p.delivery_rate_bits_per_s))],
  },
  {
    id: "round-goodput",
    title: "Goodput of a connection",
    about: "acknowledged bytes over busy time, one vote per connection and round",
    early: "Begins with the first round that has votes.",
    text: rate,
    log: true,
    series: PERCENTILES,
    data: (x) => [rounds(x), ...spread(x.rounds.map((r) => r.goodput_bits_per_s))],
  },
  {
    id: "rtt",
    title: "Round-trip time",
    about: "smoothed, all open connections, each poll",
    text: micros,
    log: true,
    series: PERCENTILES,
    data: (x) => [points(x), ...spread(x.points.map((p) => p.rtt_us))],
  },
  {
    id: "retransmits",
    title: "Sent again",
    about: "share of all bytes sent",
    none: "Nothing was sent.",
    text: percent,
    log: false,
    series: [{ label: "share", color: "--accent-line", width: 2 }],
    data: (x) => [points(x), x.points.map((p) => p.retransmit_share)],
  },
  {
    id: "goodput",
    title: "Goodput of the host",
    about: "bytes acknowledged for the first time",
    text: rate,
    log: false,
    series: [{ label: "all networks", color: "--line", width: 2 }],
    data: (x) => [points(x), x.points.map((p) => p.goodput_bits_per_s)],
  },
  {
    id: "connections",
    title: "Open connections",
    about: "the most that one poll saw",
    text: (value) => (value === null ? "–" : integer(value)),
    log: false,
    series: [{ label: "open", color: "--line", width: 2 }],
    data: (x) => [points(x), x.points.map((p) => p.connections)],
  },
];

const HEIGHT = 180;

export class Charts {
  private readonly plots = new Map<string, uPlot>();
  private readonly figures = new Map<string, HTMLElement>();
  private history: History | null = null;

  constructor() {
    byId("charts").replaceChildren(
      ...CHARTS.map((chart) => {
        const plot = h("div", { class: "plot", role: "img" });
        const figure = h(
          "figure",
          { "data-chart": chart.id },
          h("figcaption", {}, h("h3", {}, chart.title), h("p", { class: "quiet" }, chart.about)),
          h("p", { class: "legend" }),
          plot,
        );
        this.figures.set(chart.id, figure);
        return figure;
      }),
    );
    const redraw = () => this.draw(true);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(() => this.resize()).observe(byId("charts"));
  }

  show(history: History): void {
    this.history = history;
    this.draw(false);
  }

  private draw(again: boolean): void {
    const { history } = this;
    if (history === null) return;
    for (const chart of CHARTS) {
      const figure = this.figures.get(chart.id);
      const box = figure?.querySelector<HTMLElement>(".plot");
      const legend = figure?.querySelector<HTMLElement>(".legend");
      if (!figure || !box || !legend) continue;
      const data = chart.data(history);
      const known = data.slice(1).some((series) => series.some((value) => value !== null));
      figure.classList.toggle("none", !known);
      let plot = this.plots.get(chart.id);
      if (plot && (again || !known)) {
        plot.destroy();
        this.plots.delete(chart.id);
        plot = undefined;
      }
      if (!known) {
        legend.replaceChildren();
        box.removeAttribute("aria-label");
        const none = chart.none ?? "No connection was open.";
        const early = chart.early ?? "The first 10 seconds are not over yet.";
        say(box, data[0].length > 0 && !chart.early ? none : early);
        continue;
      }
      if (plot) {
        plot.setData(data);
      } else {
        box.replaceChildren();
        this.plots.set(chart.id, new uPlot(options(chart, box.clientWidth), data, box));
      }
      this.label(chart, data, legend, box);
    }
  }

  private resize(): void {
    for (const [id, plot] of this.plots) {
      const box = this.figures.get(id)?.querySelector<HTMLElement>(".plot");
      if (box && box.clientWidth > 0) plot.setSize({ width: box.clientWidth, height: HEIGHT });
    }
  }

  /** The legend is the last value of each line; the picture's name says the same. */
  private label(chart: Chart, data: [number[], ...Value[][]], legend: HTMLElement, box: HTMLElement): void {
    const last = chart.series.map((series, at) => ({ series, value: data[at + 1]?.findLast((value) => value !== null) ?? null }));
    legend.replaceChildren(
      ...last.map(({ series, value }) =>
        h(
          "span",
          { "data-series": series.label, "data-value": String(value) },
          h("i", { class: `swatch ${series.color.slice(2)}` }),
          `${series.label} `,
          h("b", {}, chart.text(value)),
        ),
      ),
    );
    const words = last.map(({ series, value }) => `${series.label} ${chart.text(value)}`).join(", ");
    box.setAttribute("aria-label", `${chart.title}, ${chart.about}. Last: ${words}.`);
  }
}

function options(chart: Chart, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = {
    stroke: color("--quiet"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: color("--grid"), width: 1 },
    ticks: { show: false },
  };
  return {
    width: Math.max(width, 100),
    height: HEIGHT,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { setScale: false } },
    scales: {
      x: { time: true },
      y: chart.log
        ? { distr: 3, range: (_, low, high) => [low / 1.5, high * 1.5] }
        : { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, values: times, space: 70, size: 28 },
      {
        ...axis,
        size: 78,
        values: (_, splits) => distinct(splits.map((value) => (value === null ? "" : chart.text(value)))),
        ...(chart.log ? LOG_AXIS : {}),
      },
    ],
    series: [
      {},
      ...chart.series.map((series) => ({
        label: series.label,
        stroke: color(series.color),
        width: series.width,
        spanGaps: false,
        points: { size: 4, show: (plot: uPlot) => (plot.data[0]?.length ?? 0) < 12 },
      })),
    ],
    hooks: { setCursor: [(plot) => hover(chart, plot)] },
  };
}

/** uPlot's own choice of ticks labels powers of ten only, of which a narrow range may hold none. */
const LOG_AXIS: Partial<uPlot.Axis> = {
  splits: (_: uPlot, __: number, low: number, high: number) => roundNumbers(low, high),
  filter: (_: uPlot, splits: number[]) => splits,
};

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 (or 1.5, 3, 7 too) between them where there are few. */
function roundNumbers(low: number, high: number): number[] {
  let found: number[] = [];
  for (const steps of [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
    found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      found.push(...steps.map((step) => step * 10 ** power));
    }
    found = found.filter((value) => value >= low && value <= high);
    if (found.length >= 3) break;
  }
  return found;
}

/** Hours and minutes, in the reader's own time; seconds too where the ticks are closer than a minute. */
function times(_: uPlot, splits: number[]): string[] {
  const close = splits.length > 1 && (splits[1] ?? 0) - (splits[0] ?? 0) < 60;
  const form = { hour: "2-digit", minute: "2-digit", second: close ? "2-digit" : undefined } as const;
  return splits.map((at) => new Date(at * 1000).toLocaleTimeString("en-GB", form));
}

/** A label that the tick below has as well says nothing: only the first of such is kept. */
function distinct(labels: string[]): string[] {
  return labels.map((label, n) => (label === labels[n - 1] ? "" : label));
}

/** The values under the pointer, over the plot. */
function hover(chart: Chart, plot: uPlot): void {
  const box = plot.root.parentElement;
  if (!box) return;
  const at = plot.cursor.idx;
  let note = box.querySelector<HTMLElement>(".hover");
  if (at === null || at === undefined || (plot.cursor.left ?? -1) < 0) {
    note?.remove();
    return;
  }
  if (!note) {
    note = h("div", { class: "hover", "aria-hidden": "true" });
    box.append(note);
  }
  const time = new Date((plot.data[0]?.[at] ?? 0) * 1000).toLocaleTimeString("en-GB");
  const values = chart.series.map((series, n) => `${series.label} ${chart.text(plot.data[n + 1]?.[at] ?? null)}`);
  say(note, [time, ...values].join("  ·  "));
}
