// Numbers as people read them: three digits, a unit, and a dash for what is not known.

export const UNKNOWN = "–";

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export function integer(n: number): string {
  return count.format(n);
}

/** A number without a unit. */
export function plain(n: number | null): string {
  return n === null ? UNKNOWN : three.format(n);
}

function scaled(value: number, step: number, units: readonly string[]): string {
  let at = 0;
  // 999.5 would be shown as 1,000 of the smaller unit.
  while (value >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return `${three.format(value)} ${units[at] ?? ""}`;
}

/** bit/s, decimal multiples as everywhere in networking. */
export function rate(bits: number | null): string {
  return bits === null ? UNKNOWN : scaled(bits, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
}

export function micros(us: number | null): string {
  return us === null ? UNKNOWN : scaled(us, 1000, ["µs", "ms", "s"]);
}

export function bytes(n: number): string {
  return scaled(n, 1000, ["B", "KB", "MB", "GB", "TB"]);
}

export function percent(share: number | null): string {
  if (share === null) return UNKNOWN;
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return `${three.format(Math.round(share * 1e4) / 1e2)} %`;
}

/** A span, by its largest unit or two. */
export function span(ms: number): string {
  if (ms > 0 && ms < 950) return `${three.format(Math.round(ms / 100) / 10)} s`;
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 === 0 || s >= 600 ? `${Math.round(s / 60)} min` : `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** The time of day; with the date where it is not today's. */
export function clock(ms: number, now: number): string {
  const [time, today] = [new Date(ms), new Date(now)];
  const clock = time.toLocaleTimeString("en-GB");
  if (time.toDateString() === today.toDateString()) return clock;
  return `${time.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock}`;
}
