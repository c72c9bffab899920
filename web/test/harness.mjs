// Starts servers and a real browser, and ends both whatever happens.

import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const root = resolve(import.meta.dirname, "../..");

/** Why no browser can be started, or null. */
export const noBrowser = existsSync(CHROMIUM) ? null : `SKIPPED: ${CHROMIUM} is not installed (Debian's package chromium)`;

/** A browser with a profile of its own; `close` removes it. */
export async function openBrowser() {
  const profile = await mkdtemp(join(tmpdir(), "weirgate-page-"));
  const context = async (options = {}) =>
    chromium.launchPersistentContext(await mkdtemp(join(profile, "profile-")), {
      executablePath: CHROMIUM,
      headless: true,
      args: FLAGS,
      ...options,
    });
  return { context, close: () => rm(profile, { recursive: true, force: true }) };
}

/**
 * A page that notes what it must never do: complain on its console, or ask anybody but `origin` for anything.
 */
export async function openPage(context, origin) {
  const page = await context.newPage();
  const complaints = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") complaints.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && url.protocol !== "data:") complaints.push(`request to ${url.origin}`);
    if (request.method() !== "GET") complaints.push(`${request.method()} ${url.pathname}`);
  });
  return { page, complaints };
}

/** The page is there and has shown its data at least `times` times. */
export async function loaded(page, times = 1) {
  await page.waitForFunction((n) => Number(document.documentElement.dataset.loaded ?? 0) >= n, times);
}

/** Starts a program that says `http://ADDRESS` on its standard output or error; returns that, and how to end it. */
export async function serve(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  const said = [];
  const ended = new Promise((done) => child.once("exit", (code, signal) => done(code ?? signal)));
  const origin = await new Promise((found, failed) => {
    const lines = (stream) =>
      createInterface({ input: stream }).on("line", (line) => {
        if (said.push(line) > 200) said.shift();
        const match = /http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]):\d+/.exec(line);
        if (match) found(match[0]);
      });
    lines(child.stdout);
    lines(child.stderr);
    child.once("error", failed);
    void ended.then((how) => failed(new Error(`${command} ended (${how}) before it served:\n${said.join("\n")}`)));
    setTimeout(() => failed(new Error(`${command} did not serve within 60 s:\n${said.join("\n")}`)), 60_000).unref();
  }).catch((error) => {
    child.kill("SIGKILL");
    throw error;
  });
  const stop = async (signal = "SIGTERM") => {
    child.kill(signal);
    const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const how = await ended;
    clearTimeout(timer);
    return how;
  };
  return { origin, stop, said };
}

/** The example that serves an invented host, on any port or a given one. */
export async function fixture({ port = 0, empty = false } = {}) {
  return serve(await built, [String(port), ...(empty ? ["empty"] : [])]);
}

/** Built as `make test-rust` builds it, which has done that where it ran before. */
async function build() {
  const checked = ["--release", "--config", ".cargo/checked.toml"];
  const args = ["build", "--locked", "--workspace", ...checked, "--example", "page_fixture", "--message-format", "json"];
  const { stdout } = await promisify(execFile)("cargo", args, { cwd: root, maxBuffer: 1 << 28 });
  const messages = stdout.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  return messages.findLast((message) => message.executable && message.target.name === "page_fixture").executable;
}
const built = build();
// Whoever awaits it hears of the failure.
built.catch(() => {});

export async function json(origin, path) {
  const response = await fetch(`${origin}/api/v1/${path}`);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response.json();
}
