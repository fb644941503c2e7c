// Goal: in an outage the log has few lines and still shows everything that differs; other lines are not touched.
import { mock } from "node:test";
import pino from "pino";
import t from "tap";
import { ApiError } from "../../server/errors.ts";
import { ChainUnreachable } from "../../server/infra/chain/errors.ts";
import { outageLog } from "../../server/infra/outage-log.ts";

type Line = Record<string, unknown> & { leftOut?: Record<string, number> };

const SUMMARY_MS = 1_000;

mock.timers.enable({ apis: ["setInterval"] });
t.teardown(() => mock.timers.reset());

function newLog() {
  const lines: Line[] = [];
  const log = pino(
    { hooks: { logMethod: outageLog(SUMMARY_MS) }, level: "info" },
    { write: (line: string) => void lines.push(JSON.parse(line) as Line) },
  );
  return { log, lines };
}

const refused = (code = "ECONNREFUSED"): Error => Object.assign(new Error("connect"), { code });
const chainDown = (code?: string): Error =>
  new ChainUnreachable("RPC endpoint 1 did not answer eth_call", { cause: refused(code) });
const databaseDown = (): Error => new Error("Connection terminated unexpectedly");

t.test("the first line of each kind is written, the others are counted", async (t) => {
  const { log, lines } = newLog();
  const child = log.child({ part: "engine" });
  for (let count = 0; count < 100; count += 1)
    child.warn({ err: chainDown(), count }, "request failed");
  child.warn({ err: chainDown("ETIMEDOUT") }, "request failed");
  child.warn({ err: databaseDown() }, "request failed");
  child.warn(
    { err: new ApiError("chain_unavailable", { cause: chainDown() }) },
    "lane interrupted",
  );
  t.equal(lines.length, 4, "another cause, another outage and another text are seen at once");
  mock.timers.tick(SUMMARY_MS);
  t.match(lines[4], {
    part: "engine",
    outage: "chain",
    count: 99,
    leftOut: { "request failed (ECONNREFUSED)": 98 },
  });
  child.warn({ err: chainDown() }, "request failed");
  child.warn({ err: chainDown() }, "lane interrupted");
  mock.timers.tick(SUMMARY_MS);
  t.match(lines[5], {
    msg: "lane interrupted",
    leftOut: { "request failed (ECONNREFUSED)": 1 },
  });
});

t.test("each cause is seen: code, detail and network", async (t) => {
  const { log, lines } = newLog();
  const states = ["53300", "53100", "58030"];
  for (const state of states) {
    const refusal = Object.assign(new Error("refused"), { code: state });
    // As Prisma reports it.
    const cause = { originalCode: state, kind: "postgres" };
    const driverAdapterError = new Error("DriverAdapterError", { cause });
    const ofPrisma = Object.assign(new Error("Invalid"), {
      code: "P2010",
      meta: { driverAdapterError },
    });
    for (const err of [refusal, ofPrisma]) log.warn({ err }, `${err.message} failed`);
  }
  t.equal(lines.length, 2 * states.length);
  const details = [
    "USDC has not been verified yet.",
    "Payments wait for 60 s.",
    "Payments wait for 61 s.",
  ];
  for (const detail of details)
    log.warn({ err: new ApiError("chain_unavailable", { detail }) }, "request failed");
  t.equal(lines.length, 2 * states.length + 2, "a number alone is no other cause");
  const before = lines.length;
  for (const network of ["eip155:1", "eip155:2"]) {
    log.warn({ err: chainDown(), network }, "lane interrupted");
    log.child({ network }).warn({ err: chainDown() }, "read interrupted");
  }
  t.equal(lines.length, before + 4);
});

t.test("what is no outage, or is an alarm, is always written", async (t) => {
  const { log, lines } = newLog();
  for (let count = 0; count < 3; count += 1) {
    log.error({ err: new Error("a defect") }, "request failed");
    log.error({ err: chainDown(), alarm: "chain_unseen" }, "payments wait");
    log.info({ err: chainDown() }, "looked");
    log.warn({ reason: "no error" }, "plain");
    log.warn(new Error("only an error"));
    log.warn("only a text");
  }
  t.equal(lines.length, 18);
  t.notOk(lines.some(({ outage }) => outage !== undefined));
});

t.test("an endless number of different lines is bounded", async (t) => {
  const { log, lines } = newLog();
  for (let count = 0; count < 500; count += 1)
    log.warn({ err: chainDown(`CODE_${"abcdefghij"[count % 10]}${count}`) }, `text ${count}`);
  t.ok(lines.length < 100, `${lines.length}`);
  const written = lines.length;
  mock.timers.tick(SUMMARY_MS);
  t.equal(lines.at(-1)?.leftOut?.["other"], 500 - written - 1);
});
