// The page of a real daemon, which watches real connections of this machine: `WEIRGATE` names the binary, `LIBZ` the library whose
// programs it counts.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { Agent, createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";

import { json, loaded, noBrowser, openBrowser, openPage, serve } from "./harness.mjs";

const weirgate = process.env.WEIRGATE;
const skip = noBrowser ?? (weirgate ? false : "SKIPPED: WEIRGATE does not name a binary (`make test-web` sets it)");
if (skip) console.log(skip);

/** Client networks, each an address of the loopback network, and what one of its responses is: bytes. */
const CLIENTS = [1, 2, 3, 4, 5, 6].map((n) => ({ address: `127.0.${n}.1`, network: `127.0.${n}.0/24`, size: n === 6 ? 20_000 : 2_000_000 }));
/** Short rounds and few votes, so that something is decided within seconds; `cc` must not be the host's default. */
const CONFIG = (dir, cc) => `
[host]
name = "page-test"
state = "${dir}/state"
[http]
listen = "127.0.0.1:0"
[control]
socket = "${dir}/control.sock"
[sockets]
interval = "500 ms"
[store]
enabled = false
[tune]
round = "2 s"
vote_bytes_min = "10 KB"
votes_min = 1
networks_min = 3
window_rounds = 6
known_enter_min = 2
known_leave_min = 2
duty_enter = "30 %"
duty_leave = "10 %"
flap_enter_max = "100 %"
flap_leave_min = "100 %"
dwell_rounds = 1
[[tune.rules]]
name = "worst"
cc = "${cc}"
worst_share = "20 %"
`;

/** Compresses five bodies at once and one with a flush in it, then waits until it is told to end. */
const COMPRESSOR = `
import sys, zlib
text = b"".join(b"%d bottles of beer on the wall, " % n for n in range(800))
for level in (1, 3, 6, 6, 9):
    zlib.compress(text, level)
stream = zlib.compressobj()
stream.compress(text), stream.flush(zlib.Z_SYNC_FLUSH), stream.compress(text), stream.flush()
sys.stdin.read()
`;
const libz = process.env.LIBZ;

let dir;
let browser;
let daemon;
let origin;
const traffic = { running: true };

before(async () => {
  if (skip) return;
  dir = await mkdtemp(join(tmpdir(), "weirgate-daemon-"));
  // A rule that chooses what the host runs on anyway decides nothing. Every kernel has reno.
  const standard = (await readFile("/proc/sys/net/ipv4/tcp_congestion_control", "utf8")).trim();
  await writeFile(join(dir, "weirgate.toml"), CONFIG(dir, standard === "reno" ? "cubic" : "reno"));
  origin = await startTraffic();
  daemon = await serve(weirgate, ["run", "-c", join(dir, "weirgate.toml")]);
  browser = await openBrowser();
});
after(async () => {
  traffic.running = false;
  origin?.closeAllConnections();
  origin?.close();
  await browser?.close();
  const how = await daemon?.stop();
  if (dir) await rm(dir, { recursive: true, force: true });
  if (!skip) assert.equal(how, 0, "the daemon stops in order");
});

/** A server, and a client in each network that asks it again and again over one connection. */
async function startTraffic() {
  const body = Buffer.alloc(2_000_000, "weir");
  const server = createServer((asked, answer) => answer.end(body.subarray(0, Number(asked.url.slice(1)))));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  for (const client of CLIENTS) void keepAsking(server.address().port, client);
  return server;
}

async function keepAsking(port, { address, size }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  while (traffic.running) {
    await new Promise((done) => {
      request({ port, host: "127.0.0.1", localAddress: address, path: `/${size}`, agent }, (answer) => {
        answer.resume();
        answer.once("close", done);
      })
        .once("error", done)
        .end();
    });
    await new Promise((done) => setTimeout(done, 50));
  }
  agent.destroy();
}

test("a real daemon's page shows its real connections, its decisions and their reasons", { skip, timeout: 180_000 }, async (t) => {
  const context = await browser.context();
  t.after(() => context.close());
  const { page, complaints } = await openPage(context, daemon.origin);
  await page.goto(daemon.origin);
  await loaded(page);
  await t.test("networks and numbers are those of the same poll", async () => {
    for (const { network } of CLIENTS) await page.locator(`tr[data-network="${network}"]`).waitFor();
    // Both move: they are compared when they are of the same poll.
    for (let attempt = 0; ; attempt += 1) {
      assert.ok(attempt < 400, "the page and the API were never of the same poll");
      const shown = await page.evaluate(() => ({
        poll: document.querySelector("#networks").dataset.poll,
        rows: [...document.querySelectorAll("#networks-table tbody tr")].map((row) => [
          row.dataset.network,
          ...[...row.querySelectorAll("[data-value]")].map((cell) => cell.dataset.value),
        ]),
      }));
      const api = await json(daemon.origin, "networks?sort=goodput&limit=15");
      if (String(api.poll) !== shown.poll) {
        await new Promise((done) => setTimeout(done, 50));
        continue;
      }
      const fields = ["connections", "goodput_bits_per_s", "delivery_rate_bits_per_s", "rtt_us", "retransmit_share"];
      assert.deepEqual(shown.rows, api.networks.map((row) => [row.name, ...fields.map((field) => String(row[field]))]));
      break;
    }
  });
  await t.test("goodput is of the order of what the clients take", async () => {
    // 20 KB and 50 ms of pause, against 2 MB and the same; of one poll, in which this process may not have had its turn.
    const is_it = ([large, small]) => small > 100_000 && small < 20_000 * 8 * 25 && large > small * 3;
    const until = Date.now() + 30_000;
    for (let shown = []; !is_it(shown); await new Promise((done) => setTimeout(done, 100))) {
      assert.ok(Date.now() < until, String(shown));
      const { networks } = await json(daemon.origin, "networks?sort=name&limit=100");
      const of = ({ network }) => networks.find((row) => row.name === network)?.goodput_bits_per_s ?? 0;
      shown = [CLIENTS[0], CLIENTS[5]].map(of);
    }
  });
  await t.test("the kernel's own count of connections agrees", async () => {
    const { stdout } = await promisify(execFile)("ss", ["-Htn", "state", "established", "dst", CLIENTS[0].address]);
    assert.equal(stdout.trim().split("\n").length, 1);
    assert.equal(await page.locator(`tr[data-network="${CLIENTS[0].network}"] td`).first().textContent(), "1");
  });
  await t.test("decisions come with their reasons", async () => {
    await page.locator("#decision-list li[data-round]").first().waitFor({ timeout: 120_000 });
    const { decisions } = await json(daemon.origin, "decisions?limit=50");
    const items = await page.$$eval("#decision-list li[data-round]", (items) =>
      items.map((item) => [".network", ".what", ".why"].map((part) => item.querySelector(part).textContent)),
    );
    const served = decisions.map((decision) => [decision.network, decision.what, decision.why].join(": "));
    for (const item of items) assert.ok(served.includes(item.join(": ")) && item[2].length > 10, item.join(": "));
  });
  const noLibz = libz ? false : "SKIPPED: LIBZ does not name a library (`make test-web` sets it)";
  await t.test("what a program compresses is counted, and stays when it has ended", { skip: noLibz }, async () => {
    assert.equal(await page.locator("#compression").isVisible(), false, "nothing compresses yet");
    const env = { ...process.env, LD_PRELOAD: libz, WEIRGATE_Z_COUNTERS: join(dir, "deflate") };
    const program = spawn("/usr/bin/python3", ["-c", COMPRESSOR], { env, stdio: ["pipe", "ignore", "inherit"] });
    const ended = new Promise((done) => program.once("close", done));
    try {
      await page.locator("[data-fallback=flush]", { hasText: /^flush 1$/ }).waitFor();
      assert.equal(await page.locator("#compression-processes").textContent(), "Processes that compress (one that was killed, for a minute more): 1");
    } finally {
      program.stdin.end();
    }
    assert.equal(await ended, 0);
    await page.locator("#compression-processes", { hasText: /more\): 0$/ }).waitFor();
    const { engines } = await json(daemon.origin, "deflate");
    const counted = engines.filter((engine) => engine.bodies > 0).map((engine) => [engine.name, String(engine.bodies)]);
    const shown = await page.$$eval("[data-engine]", (rows) => rows.map((row) => [row.dataset.engine, row.querySelector("td").textContent]));
    assert.deepEqual(shown, counted);
    assert.equal(shown.reduce((sum, [, bodies]) => sum + Number(bodies), 0), 6);
  });
  if (process.env.PICTURES) {
    await mkdir(process.env.PICTURES, { recursive: true });
    await page.waitForTimeout(8_000);
    await page.screenshot({ path: join(process.env.PICTURES, "daemon.png"), fullPage: true });
  }
  assert.deepEqual(complaints, []);
});
