// What was decided, and why: newest first, as the server has it.

import type { Decisions, Ignored, Status } from "./api";
import { byId, h, say } from "./dom";
import { clock, integer, percent, span } from "./format";

/** How many decisions the page shows. */
export const DECISIONS = 50;

export function showDecisions(document: Decisions, status: Status): void {
  const list = byId("decision-list");
  const items = document.decisions.map((decision) =>
    h(
      "li",
      { "data-network": decision.network ?? "", "data-round": decision.round },
      h("span", { class: "network" }, decision.network ?? "the host"),
      h("span", { class: "what", "data-what": decision.what.split(" ")[0] ?? "" }, decision.what),
      h("span", { class: "why" }, decision.why),
      h("span", { class: "when quiet" }, `round ${integer(decision.round)}, ${clock(decision.time_ms, document.now_ms)}`),
    ),
  );
  list.dataset["total"] = String(document.total);
  list.replaceChildren(...items);
  list.classList.toggle("none", items.length === 0);
  if (items.length === 0) {
    list.append(h("li", { class: "empty" }, `Nothing was decided yet${firstSelection(status)}.`));
  } else if (document.total > items.length) {
    list.append(h("li", { class: "empty" }, `${integer(document.total - items.length)} older ones are not shown.`));
  }
}

/** What comes before the first selection, and when it can be at the earliest. */
function firstSelection({ facts, round, now_ms }: Status): string {
  if (facts.known_rounds_min === 0 || (round !== null && round.rounds_missing === 0)) return "";
  const needed = `: networks are known after ${integer(facts.known_rounds_min)} rounds of ${span(facts.round_interval_ms)}`;
  if (round === null) return needed;
  return `${needed}, at ${clock(round.time_ms + round.rounds_missing * facts.round_interval_ms, now_ms)} at the earliest`;
}

/** Why connections had no vote on their network, in a word or two; docs/api.md has the whole of it. */
const REASONS: [keyof Ignored, string][] = [
  ["direction", "not a client's"],
  ["port", "on another port"],
  ["small", "too small"],
  ["no_metric", "not measured"],
  ["own_cc", "not on the default"],
  ["limited", "held back by an end"],
  ["washout", "in a washout"],
];

/** One line on the last round, or when the first is due. */
export function showRound(status: Status): void {
  const { round, facts } = status;
  if (round === null) {
    const due = facts.started_ms + facts.round_interval_ms - status.now_ms;
    const when = due > 0 ? `in ${span(due)}` : "soon";
    say(byId("round"), facts.round_interval_ms > 0 ? `The first round ends ${when}.` : "");
    return;
  }
  const effect = round.effect;
  const proof =
    effect === null
      ? ""
      : ` Treated over held out: ${effect.ratio.toFixed(2)} (${Math.round(effect.level * 100)} % interval ` +
        `${effect.low.toFixed(2)} to ${effect.high.toFixed(2)}).`;
  const known = `${integer(round.networks_known)} networks`;
  const judged = round.judged ? `${known} judged` : `none judged: only ${known} had enough votes`;
  const reasons = REASONS.filter(([reason]) => round.ignored[reason] > 0);
  const ignored = reasons.map(([reason, words]) => `${integer(round.ignored[reason])} ${words}`).join(", ");
  const silent = ignored === "" ? "" : ` No vote on their network: ${ignored}.`;
  const { treated, holdout, neighbours, others } = round.resent;
  const resent =
    treated === null && neighbours === null && others === null
      ? ""
      : ` Bytes sent again: treated ${percent(treated)}, held out ${percent(holdout)}, ` +
        `untreated neighbours ${percent(neighbours)}, other untreated networks ${percent(others)}.`;
  const held = round.quiet === null ? "" : ` Nothing was changed: ${round.quiet}.`;
  const refused = round.refusal === null ? held : ` Its policy was refused: ${round.refusal}.`;
  say(
    byId("round"),
    `Round ${integer(round.number)}, ${span(status.now_ms - round.time_ms)} ago: ${integer(round.votes)} votes of ` +
      `${integer(round.connections)} connections, ${judged}, ` +
      `${integer(round.selected)} selected (${integer(round.new)} new, ${integer(round.gone)} gone).${silent}${refused}${proof}${resent}`,
  );
}
