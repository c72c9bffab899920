// The documents of /api/v1, as crates/weirgate/src/view/api.rs writes them; docs/api.md describes every field.
// null is "not known", never zero.

export interface Source {
  name: string;
  why: string;
  counted: boolean;
}

export interface Facts {
  version: string;
  host: string;
  pop: string;
  kernel: string;
  started_ms: number;
  mode: string;
  polls: Source;
  closes: Source;
  steering: Source;
  poll_interval_ms: number;
  round_interval_ms: number;
  known_rounds_min: number;
  default_cc: string;
  rules: string[];
  store: string;
}

export interface Poll {
  number: number;
  time_ms: number;
  took_us: number;
  bytes: number;
  interval_ms: number;
}

export interface Totals {
  connections: number;
  accepted: number;
  connected: number;
  sending: number;
  treated: number;
  holdout: number;
  goodput_bits_per_s: number | null;
  retransmit_share: number | null;
  networks: number;
  poll_records: number;
  close_records: number;
}

export interface Losses {
  closes_seen: number;
  close_ring_failures: number;
  closes_kept: number;
  vanished: number;
  recovered: number;
  untracked: number;
  without_identity: number;
  poll_lost: number;
  poll_failures: number;
  store_lost: number;
  export_lost: number;
}

export interface Policy {
  version: number;
  networks: number;
  applied: boolean;
  since_ms: number;
  expires_ms: number | null;
  holdout_share: number;
  switch_after_bytes: number;
}

export interface Effect {
  ratio: number;
  low: number;
  high: number;
  level: number;
}

export interface Resent {
  treated: number | null;
  holdout: number | null;
  neighbours: number | null;
  others: number | null;
}

export interface Ignored {
  direction: number;
  port: number;
  small: number;
  no_metric: number;
  own_cc: number;
  limited: number;
  washout: number;
}

export interface Round {
  number: number;
  time_ms: number;
  connections: number;
  votes: number;
  ignored: Ignored;
  networks_known: number;
  judged: boolean;
  rounds_missing: number;
  selected: number;
  new: number;
  gone: number;
  refusal: string | null;
  quiet: string | null;
  resent: Resent;
  effect: Effect | null;
}

export interface Status {
  now_ms: number;
  facts: Facts;
  poll: Poll | null;
  totals: Totals;
  losses: Losses;
  policy: Policy | null;
  round: Round | null;
  problems: string[];
  notices: string[];
}

export interface Network {
  name: string;
  connections: number;
  accepted: number;
  connected: number;
  sending: number;
  treated: number;
  holdout: number;
  closed: number;
  goodput_bits_per_s: number | null;
  retransmit_share: number | null;
  rtt_us: number | null;
  min_rtt_us: number | null;
  delivery_rate_bits_per_s: number | null;
  congestion_controls: { name: string; connections: number }[];
  decision: string | null;
}

export interface Networks {
  now_ms: number;
  poll: number;
  total: number;
  networks: Network[];
  other: Network | null;
  congestion_controls: Network[];
}

export interface Decision {
  time_ms: number;
  round: number;
  network: string | null;
  what: string;
  why: string;
}

export interface Decisions {
  now_ms: number;
  total: number;
  decisions: Decision[];
}

export interface Percentiles {
  count: number;
  p5: number;
  p10: number;
  p50: number;
  p90: number;
}

export interface Point {
  time_ms: number;
  connections: number;
  closes: number;
  goodput_bits_per_s: number | null;
  retransmit_share: number | null;
  delivery_rate_bits_per_s: Percentiles | null;
  rtt_us: Percentiles | null;
  min_rtt_us: Percentiles | null;
}

export interface RoundPoint {
  time_ms: number;
  goodput_bits_per_s: Percentiles | null;
  retransmit_ppm: Percentiles | null;
  min_rtt_us: Percentiles | null;
}

export interface History {
  now_ms: number;
  points: Point[];
  rounds: RoundPoint[];
}

export interface Limit {
  name: string;
  mode: string;
  layer: string;
  rate_bits_per_s: number;
  passed_bytes: number;
  waiting: number;
  throttled_ms: number;
  marked: number;
  dropped_rate: number;
  dropped_room: number;
  dropped_codel: number;
  delay_p50_us: number | null;
  delay_p99_us: number | null;
}

export interface Port {
  name: string;
  kind: string;
  failed: string | null;
  gone: number;
  received: number;
  sent: number;
  lost: number;
  malformed: number;
  filtered: number;
  refused: number;
  unsent: number;
}

export interface Switch {
  now_ms: number;
  limits: Limit[];
  ports: Port[];
}

export interface Engine {
  name: string;
  bodies: number;
  bytes_in: number;
  bytes_out: number;
  us: number;
}

export interface Fallback {
  reason: string;
  count: number;
}

export interface Deflate {
  now_ms: number;
  processes: number;
  instances: number;
  engines: Engine[];
  fallbacks: Fallback[];
}

/** An answer is awaited for so long: a daemon that is busy for longer is shown as not answering. */
const PATIENCE_MS = 8_000;

/** Reads one document; throws what a person can read. */
export async function read<T>(path: string): Promise<T> {
  const response = await fetch(`/api/v1/${path}`, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
  if (!response.ok) {
    throw new Error(`${response.status}: ${(await response.text()).trim()}`);
  }
  return (await response.json()) as T;
}
