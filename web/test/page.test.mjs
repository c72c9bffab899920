// The page in a real browser, with the data of an invented host: is what is shown what is served?

import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";

import { fixture, json, loaded, noBrowser, openBrowser, openPage } from "./harness.mjs";

const skip = noBrowser ?? false;
if (skip) console.log(skip);
/** Where pictures go, for a person to look at; nowhere unless asked. */
const pictures = process.env.PICTURES ? resolve(process.env.PICTURES) : null;

let browser;
let server;

before(async () => {
  if (skip) return;
  if (pictures) await mkdir(pictures, { recursive: true });
  browser = await openBrowser();
  server = await fixture();
});
after(async () => {
  await server?.stop();
  await browser?.close();
});

async function picture(page, name) {
  if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
}

/** Opens the page in a context of its own, and holds it to what it must never do. */
async function visit(t, options, look, origin = server.origin) {
  const context = await browser.context(options);
  t.after(() => context.close());
  const { page, complaints } = await openPage(context, origin);
  await page.goto(origin);
  await loaded(page);
  await look(page);
  assert.deepEqual(complaints, []);
}

/** "1.23 Mbit/s" as a number of bit/s, and the like. */
function number(text) {
  const units = { "": 1, B: 1, KB: 1e3, MB: 1e6, "bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "µs": 1, ms: 1e3, s: 1e6, "%": 0.01 };
  const match = /^([\d.,]+)\s*(\S*)$/.exec(text);
  assert.ok(match && match[2] in units, `"${text}" is not a number with a unit`);
  return Number(match[1].replaceAll(",", "")) * units[match[2]];
}

/** Shown to three digits, or to 0.01 % where it is a share. */
function assertShown(text, value, what) {
  if (value === null) return assert.equal(text, "–", what);
  const tolerance = text.endsWith("%") ? 0.000051 : 0;
  assert.ok(Math.abs(number(text) - value) <= Math.max(Math.abs(value) * 0.0051, tolerance), `${what}: ${text}, not ${value}`);
}

test("the table shows the API's numbers, in the API's order, for every way of sorting", { skip }, (t) =>
  visit(t, {}, async (page) => {
    assert.equal(await page.locator("#networks-table tbody tr").count(), 15);
    await page.getByRole("button", { name: "Show all 46" }).click();
    for (const sort of ["goodput", "connections", "rtt", "retransmits", "name"]) {
      const title = { goodput: "Goodput", connections: "Connections", rtt: "RTT", retransmits: "Sent again", name: "Network" };
      await page.getByRole("button", { name: title[sort], exact: true }).click();
      const api = await json(server.origin, `networks?sort=${sort}&limit=200`);
      assert.ok(api.networks.length > 40);
      const names = api.networks.map((network) => network.name);
      await page.waitForFunction(
        (names) => [...document.querySelectorAll("#networks-table tbody tr")].map((row) => row.dataset.network).join() === names.join(),
        names,
      );
      const rows = await page.$$eval("#networks-table tbody tr", (rows) =>
        rows.map((row) => [...row.children].map((cell) => ({ text: cell.textContent, value: cell.dataset.value }))),
      );
      for (const [at, network] of api.networks.entries()) {
        const fields = ["connections", "goodput_bits_per_s", "delivery_rate_bits_per_s", "rtt_us", "retransmit_share"];
        const [name, ...cells] = rows[at];
        assert.equal(name.text, network.name);
        for (const [n, field] of fields.entries()) {
          assert.equal(cells[n].value, String(network[field]), `${network.name} ${field}`);
          assertShown(cells[n].text, network[field], `${network.name} ${field}`);
        }
        for (const cc of network.congestion_controls) assert.ok(cells[5].text.includes(cc.name), network.name);
        assert.equal(cells[6].text, network.decision ?? "–", network.name);
      }
      assert.equal(await page.locator("th[aria-sort=descending], th[aria-sort=ascending]").count(), 1);
    }
  }),
);

test("totals, losses and sources are the API's", { skip }, (t) =>
  visit(t, {}, async (page) => {
    const status = await json(server.origin, "status");
    const tile = (id) => page.locator(`[data-tile=${id}]`);
    const expected = {
      connections: status.totals.connections,
      goodput: status.totals.goodput_bits_per_s,
      retransmits: status.totals.retransmit_share,
      networks: status.totals.networks,
      policy: status.policy.networks,
    };
    for (const [id, value] of Object.entries(expected)) {
      assert.equal(await tile(id).getAttribute("data-value"), String(value), id);
      assertShown(await tile(id).locator(".figure").textContent(), value, id);
    }
    assert.match(await tile("losses").textContent(), /Lost2connections vanished/);
    for (const [id, value] of Object.entries(status.losses)) {
      if (id === "recovered") continue;
      const shown = id === "vanished" ? value - status.losses.recovered : value;
      const cell = page.locator(`[data-loss=${id}] td`);
      assert.equal((await cell.textContent()).replaceAll(",", ""), String(shown), id);
    }
    for (const source of ["polls", "closes", "steering"]) {
      const text = await page.locator(`[data-source=${source}]`).textContent();
      assert.ok(text.includes(status.facts[source].name) && text.includes(status.facts[source].why), text);
    }
    assert.match(await page.locator("#freshness").textContent(), /^(stale: )?polled \d/);
    assert.equal(await page.title(), "edge-03 · Weirgate");
  }),
);

test("every decision shows its reason", { skip }, (t) =>
  visit(t, {}, async (page) => {
    const { decisions } = await json(server.origin, "decisions?limit=50");
    assert.ok(decisions.length >= 8);
    const items = await page.$$eval("#decision-list li[data-round]", (items) =>
      items.map((item) => [".network", ".what", ".why"].map((part) => item.querySelector(part).textContent)),
    );
    assert.deepEqual(items, decisions.map((decision) => [decision.network, decision.what, decision.why]));
    assert.ok(decisions.every((decision) => decision.why.length > 10));
    const round = await page.locator("#round").textContent();
    assert.match(round, /Round 288, .* ago: 2,961 votes of 3,127 connections, 44 networks judged/);
    assert.match(round, /No vote on their network: 166 too small, 12 held back by an end\./);
    assert.match(round, /sent again: treated 1.2 %, held out 0.9 %, untreated neighbours 0.4 %, other untreated networks 0.31 %/);
  }),
);

test("limits and ports are the API's", { skip }, (t) =>
  visit(t, {}, async (page) => {
    const { limits, ports } = await json(server.origin, "limits");
    assert.equal(limits.length, 2);
    // What passes is known from the second answer on.
    await page.locator("[data-limit=tenant-a] td", { hasText: "bit/s" }).nth(1).waitFor();
    for (const limit of limits) {
      const cells = await page.$$eval(`[data-limit=${limit.name}] td`, (cells) => cells.map((cell) => cell.textContent));
      const [rate, passing, held, waiting, p50, p99, dropped, marked] = cells;
      assert.match(rate, new RegExp(`^[\\d.]+ [MG]bit/s of ${limit.layer}, ${limit.mode}$`));
      assert.ok(number(passing) > 0 && number(passing) <= limit.rate_bits_per_s * 1.01, passing);
      assert.ok(number(held) >= 0 && number(held) <= 1, held);
      assert.equal(waiting, String(limit.waiting));
      assertShown(p50, limit.delay_p50_us, "p50");
      assertShown(p99, limit.delay_p99_us, "p99");
      assert.equal(dropped, String(limit.dropped_rate + limit.dropped_room + limit.dropped_codel));
      assert.equal(marked, String(limit.marked));
    }
    for (const { name, failed } of ports) {
      const text = await page.locator(`[data-port=${name}]`).textContent();
      assert.ok(failed === null ? / frames in, .* out, \d+ dropped$/.test(text) : text.endsWith(`failed: ${failed}`), text);
    }
  }),
);

test("engines and fallbacks are the API's, but for those that did nothing", { skip }, (t) =>
  visit(t, {}, async (page) => {
    const before = await json(server.origin, "deflate");
    // Rates are known from the second answer on, and what is shown then is later than `before`.
    await page.locator("[data-engine=libdeflate] td", { hasText: "B/s" }).waitFor();
    await loaded(page, Number(await page.locator("html").getAttribute("data-loaded")) + 1);
    const shown = await page.$$eval("[data-engine]", (rows) =>
      rows.map((row) => [row.dataset.engine, ...[...row.querySelectorAll("td")].map((cell) => cell.textContent)]),
    );
    const { engines, fallbacks, processes, instances } = await json(server.origin, "deflate");
    const used = engines.filter((engine) => engine.bodies > 0);
    assert.ok(used.length > 0 && used.length < engines.length);
    assert.deepEqual(shown.map(([name]) => name), used.map((engine) => engine.name));
    for (const [at, { name, bodies, bytes_in, bytes_out, us }] of used.entries()) {
      const [, count, perSecond, taken, ratio, time] = shown[at];
      const earlier = before.engines.find((engine) => engine.name === name).bodies;
      assert.ok(number(count) >= earlier && number(count) <= bodies, `${name}: ${count} bodies`);
      // 400 bodies of 25 KB each second; the other stands still.
      const moves = bodies > earlier;
      const near = (text, value) => assert.ok(Math.abs(number(text) - value) <= value * 0.05, `${name}: ${text}, not ${value}`);
      near(perSecond, moves ? 400 : 0);
      near(taken.replace("/s", ""), moves ? 1e7 : 0);
      assertShown(ratio, bytes_in / bytes_out, `${name}: ratio`);
      assertShown(time, us > 0 ? us / bodies : null, `${name}: time`);
    }
    const text = await page.locator("#compression-processes").textContent();
    assert.equal(text, `Processes that compress (one that was killed, for a minute more): ${processes}; instances of an accelerator in use: ${instances}`);
    const reasons = await page.$$eval("[data-fallback]", (reasons) => reasons.map((reason) => [reason.textContent, reason.title]));
    const some = fallbacks.filter((fallback) => fallback.count > 0);
    assert.ok(some.length > 0 && some.length < fallbacks.length);
    const said = some.map(({ reason, count }) => `${reason} ${count.toLocaleString("en")}`);
    assert.deepEqual(reasons.map(([text]) => text), said);
    assert.ok(reasons.every(([, title]) => title.length > 20), "each reason is explained");
    assert.equal(await page.locator("#compression-fallbacks").textContent(), `Left to another engine: ${said.join(", ")}`);
  }),
);

test("counts that begin again have no rate, and a process that has done nothing is there", { skip }, (t) =>
  visit(t, {}, async (page) => {
    const engine = { name: "libdeflate", bodies: 5, bytes_in: 9_000, bytes_out: 3_000, us: 400 };
    const answer = (engines) => (route) => route.fulfill({ json: { now_ms: Date.now(), processes: 1, instances: 0, engines, fallbacks: [] } });
    await page.route("**/api/v1/deflate", answer([engine]));
    await page.locator("[data-engine=libdeflate] td", { hasText: /^5$/ }).waitFor();
    assert.deepEqual(await page.locator("[data-engine=libdeflate] td").allTextContents(), ["5", "–", "–", "3.00", "80 µs"]);
    await page.route("**/api/v1/deflate", answer([{ ...engine, bodies: 0, bytes_in: 0, bytes_out: 0, us: 0 }]));
    await page.getByText("Nothing has been compressed yet.").waitFor();
    assert.equal(await page.locator("#compression-processes").textContent(), "Processes that compress (one that was killed, for a minute more): 1");
    assert.equal(await page.locator("#compression-fallbacks").textContent(), "Left to another engine: none");
  }),
);

test("the charts end in the API's last percentiles, in words as well", { skip }, (t) =>
  visit(t, {}, async (page) => {
    for (const range of ["hour", "day"]) {
      await page.getByText(range === "hour" ? "Hour" : "Day", { exact: true }).click();
      const history = await json(server.origin, `history?range=${range}`);
      const [point, round] = [history.points.at(-1), history.rounds.at(-1)];
      const expected = [
        ["delivery-rate", point.delivery_rate_bits_per_s],
        ["rtt", point.rtt_us],
        ["round-goodput", round.goodput_bits_per_s],
      ];
      for (const [id, percentiles] of expected) {
        const figure = page.locator(`[data-chart=${id}]`);
        for (const key of ["p5", "p10", "p50", "p90"]) {
          const value = figure.locator(`[data-series=${key}][data-value="${percentiles[key]}"]`);
          await value.waitFor();
          assertShown(await value.locator("b").textContent(), percentiles[key], `${id} ${key}`);
        }
        assert.equal(await figure.locator("canvas").count(), 1);
        assert.match(await figure.locator(".plot").getAttribute("aria-label"), /Last: p90 /);
      }
      const goodput = page.locator(`[data-chart=goodput] [data-value="${point.goodput_bits_per_s}"]`);
      await goodput.waitFor();
    }
  }),
);

test("light, dark and a phone: nothing is cut off", { skip }, async (t) => {
  const desktop = { width: 1280, height: 900 };
  const phone = { width: 390, height: 844 };
  const looks = [
    ["light", { colorScheme: "light", viewport: desktop }],
    ["dark", { colorScheme: "dark", viewport: desktop }],
    ["phone-light", { colorScheme: "light", viewport: phone, deviceScaleFactor: 2, hasTouch: true, isMobile: true }],
    ["phone-dark", { colorScheme: "dark", viewport: phone, deviceScaleFactor: 2, hasTouch: true, isMobile: true }],
  ];
  for (const [name, options] of looks) {
    await visit(t, options, async (page) => {
      await page.waitForTimeout(200);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wide, 0, `${name}: the page scrolls sideways by ${wide} px`);
      // A table begins where its section's title does.
      const insets = await page.$$eval(".table-wrap th:first-child", (heads) =>
        heads.map((head) => {
          const left = (element) => element.getBoundingClientRect().left;
          return left(head) + parseFloat(getComputedStyle(head).paddingLeft) - left(head.closest("section").querySelector("h2"));
        }),
      );
      assert.ok(insets.length > 0 && insets.every((inset) => Math.abs(inset) < 1), `${name}: ${insets} px`);
      const grounds = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const dark = Math.max(...grounds.match(/\d+/g).map(Number)) < 80;
      assert.equal(dark, name.includes("dark"), `${name}: ${grounds}`);
      await picture(page, name);
    });
  }
});

test("text passes 4.5:1 on its ground, in both schemes", { skip }, async (t) => {
  for (const colorScheme of ["light", "dark"]) {
    await visit(t, { colorScheme }, async (page) => {
      const poor = await page.evaluate(poorContrast);
      assert.deepEqual(poor, [], colorScheme);
    });
  }
});

/** Runs in the page: texts whose colour is too near to that of the first opaque ground below them (WCAG 2.2, 1.4.3). */
function poorContrast() {
  const parse = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
    if (!own || element.closest(".visually-hidden, .skip, noscript") || element.getClientRects().length === 0) continue;
    const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(`${element.className || element.tagName} "${element.textContent.slice(0, 20)}" ${ratio.toFixed(2)}`);
  }
  return [...new Set(found)];
}

test("it can be used from the keyboard", { skip }, (t) =>
  visit(t, {}, async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    const button = page.getByRole("button", { name: "RTT", exact: true });
    await button.focus();
    await page.keyboard.press("Enter");
    await page.locator("th[aria-sort=descending]", { hasText: "RTT" }).waitFor();
    // A refresh must not take the focus away.
    await loaded(page, 3);
    assert.equal(await page.evaluate(() => document.activeElement.textContent.trim()), "RTT");
  }),
);

test("a host without connections or decisions says so", { skip }, async (t) => {
  const empty = await fixture({ empty: true });
  t.after(() => empty.stop());
  const look = async (page) => {
    assert.match(await page.locator("#networks-table").textContent(), /first poll is not done yet/);
    const waits = "Nothing was decided yet: networks are known after 24 rounds of 5 min.";
    assert.equal(await page.locator("#decision-list").textContent(), waits);
    assert.match(await page.locator("#round").textContent(), /The first round ends in/);
    assert.match(await page.locator("#notices .notice:not(.bad)").textContent(), /^rule `worst` chooses cubic/);
    assert.equal(await page.locator("#notices .bad").count(), 0, "a notice is no alarm");
    assert.equal(await page.locator("#limits").isVisible(), false, "no limits, no section");
    assert.equal(await page.locator("#compression").isVisible(), false, "nothing compresses, no section");
    assert.match(await page.locator("[data-chart=rtt]").textContent(), /first 10 seconds are not over yet/);
    for (const tile of ["connections", "goodput", "retransmits", "networks", "policy"]) {
      assert.equal(await page.locator(`[data-tile=${tile}] .figure`).textContent(), "–", tile);
    }
    await picture(page, "empty");
  };
  await visit(t, {}, look, empty.origin);
});

test("a daemon that goes away is said to, and comes back by itself", { skip }, async (t) => {
  const first = await fixture();
  const port = new URL(first.origin).port;
  const context = await browser.context();
  t.after(() => context.close());
  const page = await context.newPage();
  await page.goto(first.origin);
  await loaded(page);
  await first.stop();
  await page.locator("#freshness[data-state=failed]").waitFor();
  assert.match(await page.locator("#notices").textContent(), /does not answer; trying again. What is shown is from \d/);
  assert.ok((await page.locator("#networks-table tbody tr").count()) > 10, "the last numbers stay");
  await picture(page, "no-answer");
  const second = await fixture({ port });
  t.after(() => second.stop());
  await page.locator("#freshness:not([data-state=failed])").waitFor();
  assert.equal(await page.locator("#notices").textContent(), "");
});
