// Goal: a list counts whole or not at all, a service's answer counts only if it answers the question, and everything else
// is a failure, which the operator decided about; strangers fill neither memory nor log.
import { mkdtempSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import type { Address } from "viem";
import { FileList } from "../../server/plugins/screening/file.ts";
import { readList } from "../../server/plugins/screening/list.ts";
import { Screening, type Outcome } from "../../server/plugins/screening/screening.ts";
import { outboundTo, ScreeningService } from "../../server/plugins/screening/service.ts";
import { ScreeningFailed, type ScreeningSource } from "../../server/plugins/screening/source.ts";

const NOW = Date.parse("2026-11-27T12:00:00Z");
const HOUR_MS = 3_600_000;
const numbered = (number: number): Address => `0x${number.toString(16).padStart(40, "0")}`;
const [A, B, C] = [numbered(0xa), numbered(0xb), numbered(0xc)];

t.test("a list is read whole, or not at all", async (t) => {
  const read = async (text: string) => {
    const { addresses, date } = await readList(text, NOW);
    return { addresses: [...addresses], date: date?.toISOString() };
  };
  const good: [string, string, string[], string?][] = [
    ["plain", `${A}\n${B}\n`, [A, B]],
    [
      "comments, spaces, case, repeats",
      `# a list\r\n ${A} # one\n\n0x${B.slice(2).toUpperCase()}\n${A}`,
      [A, B],
    ],
    ["a date", `2026-11-26\n${A}`, [A], "2026-11-26T00:00:00.000Z"],
    ["a time", `\uFEFF2026-11-26T10:30:00Z\n${A}`, [A], "2026-11-26T10:30:00.000Z"],
    ["empty on purpose", "2026-11-26\n", [], "2026-11-26T00:00:00.000Z"],
  ];
  for (const [name, text, addresses, date] of good)
    t.same(await read(text), { addresses, date }, name);
  const bad: [string, string, RegExp][] = [
    ["empty", "", /no address/],
    ["comments only", "# nothing\n", /no address/],
    ["cut in the middle", `${A}\n${B.slice(0, 20)}`, /line 2 is not an address/],
    ["a page of HTML", "<!doctype html>\n<h1>502</h1>", /line 1 is not/],
    ["no such day", `2026-13-45\n${A}`, /not a date/],
    ["from the future", `2026-12-01\n${A}`, /future/],
    ["a date elsewhere", `${A}\n2026-11-26`, /line 2 is not/],
  ];
  for (const [name, text, expected] of bad)
    await t.rejects(read(text), { name: "ScreeningFailed", message: expected }, name);
});

interface Line {
  level: string;
  message: string;
}

async function listIn(t: Test, text: string, more: { maxAgeSeconds?: number } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "purser-screening-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "list.txt");
  writeFileSync(path, text);
  const lines: Line[] = [];
  const write = (level: string) => (_fields: object, message: string) =>
    void lines.push({ level, message });
  const log = { info: write("info"), error: write("error") };
  let nowMs = NOW;
  // The timer never rings here: each look is a call.
  const options = { path, lookMs: 2 ** 30, nowMs: () => nowMs, log, ...more };
  const list = await FileList.open(options);
  t.teardown(() => list.close());
  const replace = async (content: string): Promise<void> => {
    writeFileSync(`${path}.new`, content);
    renameSync(`${path}.new`, path);
    await list.look();
  };
  const later = (ms: number) => void (nowMs += ms);
  const errors = () => lines.filter(({ level }) => level === "error").length;
  return { folder, path, list, replace, later, errors };
}

t.test("a changed file is read again; a broken one leaves the last good list", async (t) => {
  const { folder, path, list, replace, errors } = await listIn(t, A);
  const blocked = () => list.blockedAmong([A, B, C]);
  t.same(await blocked(), [A]);
  await replace(`${B}\n${C}`);
  t.same(await blocked(), [B, C]);
  await replace(`${A}\nnonsense`);
  t.same(await blocked(), [B, C], "broken: nothing of it counts");
  await list.look();
  t.equal(errors(), 1, "said once, not at each look");
  await replace("");
  rmSync(path);
  await list.look();
  t.same(await blocked(), [B, C], "empty, then gone");
  t.equal(errors(), 3);
  writeFileSync(join(folder, "other.txt"), A);
  symlinkSync(join(folder, "other.txt"), path);
  await list.look();
  t.same(await blocked(), [A], "through a link, as orchestrators mount it");
});

t.test("under load nobody sees a part of a list", async (t) => {
  const many = (from: number) =>
    Array.from({ length: 20_000 }, (_, index) => numbered(from + index));
  const [low, high] = [many(0x1_0000), many(0x9_0000)];
  const { list, replace } = await listIn(t, low.join("\n"));
  const ends = [low[0], low.at(-1), high[0], high.at(-1)] as Address[];
  const seen = new Set<string>();
  const done = new AbortController();
  const asking = (async () => {
    while (!done.signal.aborted) {
      seen.add((await list.blockedAmong(ends)).map((one) => ends.indexOf(one as Address)).join(""));
      await new Promise(setImmediate);
    }
  })();
  for (const content of [high, low, high]) await replace(content.join("\n"));
  done.abort();
  await asking;
  seen.add((await list.blockedAmong(ends)).map((one) => ends.indexOf(one as Address)).join(""));
  t.same([...seen].sort(), ["01", "23"]);
});

t.test("a list that is too old has failed, on each replica by itself", async (t) => {
  const day = { maxAgeSeconds: 86_400 };
  const old = await listIn(t, `2026-11-26T12:00:00Z\n${A}`, day);
  const fresh = await listIn(t, `2026-11-27T11:00:00Z\n${A}`, day);
  t.equal(old.list.ageSeconds(), 86_400);
  t.same(await old.list.blockedAmong([A]), [A], "a day old is not too old");
  for (const { later } of [old, fresh]) later(1_000);
  await t.rejects(old.list.blockedAmong([B]), { message: /24 hours old; at most 24/ });
  const ask = (source: ScreeningSource, isOpen: boolean) =>
    screeningOf(source, isOpen).screening.refusalOfPayment([A, B]);
  t.equal(await ask(old.list, false), "screening_unavailable");
  t.equal(await ask(old.list, true), undefined);
  t.equal(await ask(fresh.list, false), "address_screened");
  await old.replace(`2026-11-27T12:00:00Z\n${A}`);
  t.equal(await ask(old.list, false), "address_screened", "the new list reached it");
  const undated = await listIn(t, A, day);
  utimesSync(undated.path, new Date(NOW), new Date(NOW - 25 * HOUR_MS));
  await undated.list.look();
  await t.rejects(
    undated.list.blockedAmong([A]),
    ScreeningFailed,
    "else the file's own time counts",
  );
});

t.test("a start without a good list is refused", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "purser-screening-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const log = { info: () => undefined, error: () => undefined };
  const options = { lookMs: 2 ** 30, nowMs: () => NOW, log };
  for (const [path, message] of [
    [join(folder, "none"), /cannot be read \(ENOENT\)/],
    [folder, /cannot be read|not a file/],
    ["/dev/zero", /not a file/],
  ] as const)
    await t.rejects(FileList.open({ ...options, path }), { name: "ScreeningFailed", message });
});

interface Question {
  addresses: string[];
  authorization: string | undefined;
}

/** A real service, and what it was asked. */
async function serviceWith(t: Test, answer: RequestListener) {
  const questions: Question[] = [];
  const server = createServer((request, response) => {
    let text = "";
    request.on("data", (part: Buffer) => (text += part.toString()));
    request.on("end", () => {
      const { authorization } = request.headers;
      questions.push({ ...(JSON.parse(text) as { addresses: string[] }), authorization });
      answer(request, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/screen`;
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  let nowMs = 0;
  const service = new ScreeningService({
    url,
    token: "a-secret-token",
    outbound: outboundTo(url),
    answerMs: 300,
    freshMs: 60_000,
    nowMs: () => nowMs,
  });
  t.teardown(async () => {
    await service.close();
    await close();
  });
  return { service, questions, close, later: (ms: number) => void (nowMs += ms) };
}

const json =
  (body: unknown): RequestListener =>
  (_request, response) =>
    void response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));

t.test("one request for both addresses of a payment, used again for a while", async (t) => {
  const { service, questions, later } = await serviceWith(
    t,
    json({ blocked: [B.toUpperCase().replace("X", "x")] }),
  );
  const asked = () => questions.map(({ addresses }) => addresses);
  t.same(await Promise.all([service.blockedAmong([A, B]), service.blockedAmong([B, A])]), [
    [B],
    [B],
  ]);
  t.same(asked(), [[A, B]], "the same question at the same time is one");
  t.equal(questions[0]?.authorization, "Bearer a-secret-token");
  later(59_999);
  t.same(await service.blockedAmong([B]), [B]);
  t.equal(questions.length, 1);
  later(2);
  t.same(await service.blockedAmong([B]), [B]);
  t.same(asked().slice(1), [[B]], "then again");
});

t.test("it keeps a bounded number of answers, the newest", async (t) => {
  const { service, questions } = await serviceWith(t, json({ blocked: [] }));
  const many = Array.from({ length: 10_001 }, (_, index) => numbered(index));
  await service.blockedAmong(many);
  await service.blockedAmong(many.slice(1));
  t.equal(questions.length, 1, "10,000 are known");
  await service.blockedAmong(many.slice(0, 1));
  t.equal(questions.length, 2, "the oldest is forgotten");
});

t.test("whatever does not answer the question is a failure, which is not remembered", async (t) => {
  const bomb = gzipSync(Buffer.alloc(8 * 1024 * 1024, " "));
  const cases: [string, RequestListener][] = [
    ["slow", () => undefined],
    ["slow after its headers", (_request, response) => void response.writeHead(200).write("{")],
    ["hung up", (request) => void request.socket.destroy()],
    ["an error", (_request, response) => void response.writeHead(500).end('{"blocked":[]}')],
    [
      "a redirect",
      (_request, response) => void response.writeHead(307, { location: "/screen" }).end(),
    ],
    ["a page", (_request, response) => void response.end("<h1>hello</h1>")],
    ["no list", json({ blocked: false })],
    ["nothing", json({})],
    ["null", json(null)],
    ["a bare list", json([A])],
    ["an address that was not asked for", json({ blocked: [C] })],
    ["not addresses", json({ blocked: [1, null, {}] })],
    ["huge", json({ blocked: [], filler: "x".repeat(100_000) })],
    [
      "huge when unpacked",
      (_request, response) =>
        void response.writeHead(200, { "content-encoding": "gzip" }).end(bomb),
    ],
  ];
  for (const [name, answer] of cases) {
    const { service, questions } = await serviceWith(t, answer);
    await t.rejects(service.blockedAmong([A, B]), ScreeningFailed, name);
    await t.rejects(service.blockedAmong([A, B]), ScreeningFailed, name);
    t.equal(questions.length, 2, `${name}: asked again, without following anything`);
  }
  const down = await serviceWith(t, json({ blocked: [] }));
  await down.close();
  await t.rejects(down.service.blockedAmong([A]), ScreeningFailed, "down");
});

t.test("questions that wait are bounded", async (t) => {
  const waiting: (() => void)[] = [];
  const service = new ScreeningService({
    url: "http://127.0.0.1:9/",
    token: undefined,
    outbound: {
      request: () =>
        new Promise((resolve) => {
          const body = Buffer.from('{"blocked":[]}');
          waiting.push(() => resolve({ status: 200, headers: {}, body }));
        }),
      close: async () => undefined,
    },
    answerMs: 1,
    freshMs: 1,
    nowMs: () => 0,
  });
  const asked = Array.from({ length: 128 }, (_, index) => service.blockedAmong([numbered(index)]));
  await t.rejects(service.blockedAmong([numbered(999)]), { message: /too many/ });
  for (const answer of waiting) answer();
  await Promise.all(asked);
  const again = service.blockedAmong([numbered(999)]);
  waiting.at(-1)?.();
  t.same(await again, [], "there is room again");
});

/** Screening whose source is given, with what it counts and logs. */
function screeningOf(source: ScreeningSource, isOpen: boolean) {
  const counts: string[] = [];
  const lines: Record<string, unknown>[] = [];
  let nowMs = 0;
  const screening = new Screening({
    source,
    isOpen,
    count: ({ place, outcome }: { place: string; outcome: Outcome }) =>
      void counts.push(`${place} ${outcome}`),
    ownerOf: async () => C,
    nowMs: () => nowMs,
    log: { warn: (fields, message) => void lines.push({ ...fields, message }) },
  });
  return { screening, counts, lines, later: (ms: number) => void (nowMs += ms) };
}

const listing = (...blocked: Address[]): ScreeningSource => ({
  blockedAmong: async (addresses) => addresses.filter((one) => blocked.includes(one as Address)),
  close: () => undefined,
});
const failing: ScreeningSource = {
  blockedAmong: () => Promise.reject(new ScreeningFailed("down")),
  close: () => undefined,
};

t.test("refusals of strangers are counted, with one line a second", async (t) => {
  const { screening, counts, lines, later } = screeningOf(listing(A), false);
  for (let round = 0; round < 100; round += 1) await screening.refusalOfPayment([A, B]);
  t.equal(counts.length, 100);
  t.match(lines, [{ place: "facilitator", addresses: [A] }]);
  t.equal(lines.length, 1);
  later(1_000);
  await screening.refusalOfPayment([B, A]);
  t.match(lines, [{}, { leftOut: 99 }]);
});

t.test(
  "an agent's payment names the side that is refused, and a fault of ours is no answer",
  async (t) => {
    const payer = { id: "agt", walletAddress: B };
    const refusal = (source: ScreeningSource, isOpen = false) =>
      screeningOf(source, isOpen).screening.refusalOfAgent(payer, A);
    t.same(await refusal(listing(A)), { code: "payee_screened" });
    t.same(await refusal(listing(B)), { code: "account_screened" });
    t.same(await refusal(listing(C)), { code: "account_screened" }, "its owner");
    t.same(await refusal(listing(A, C)), { code: "payee_screened" });
    t.equal(await refusal(listing()), undefined);
    await t.rejects(refusal(failing), { code: "screening_unavailable" });
    t.equal(await refusal(failing, true), undefined);
    const broken = { ...failing, blockedAmong: () => Promise.reject(new TypeError("a fault")) };
    await t.rejects(refusal(broken, true), TypeError);
  },
);

t.test("who has an account signs in, and signs withdrawals only", async (t) => {
  const closed = (source: ScreeningSource) => screeningOf(source, false);
  const known = async () => true;
  const unknown = async () => false;
  for (const source of [listing(A), failing]) {
    const { screening, counts } = closed(source);
    await screening.assertMaySignIn(A, known);
    await screening.assertMaySign({ address: A }, "Withdraw");
    await screening.assertMaySign({ address: A }, "PayoutAddress");
    t.same(counts, []);
  }
  const { screening } = closed(listing(A));
  await t.rejects(screening.assertMaySignIn(A, unknown), { code: "account_screened" });
  await screening.assertMaySignIn(B, unknown);
  for (const person of [
    { address: A },
    { address: B, second: { address: A } },
    { address: B, member: { address: A } },
    { address: B, member: { address: B }, signers: [{ address: B }, { address: A }] },
  ])
    for (const kind of [
      "AgentPolicy",
      "IssueKey",
      "ApprovePayment",
      "MoveOwner",
      "Resume",
    ] as const)
      await t.rejects(screening.assertMaySign(person, kind), { code: "account_screened" });
  await screening.assertMaySign({ address: B, second: null, member: null }, "AgentPolicy");
  const down = closed(failing).screening;
  await t.rejects(down.assertMaySignIn(A, unknown), { code: "screening_unavailable" });
  await t.rejects(down.assertMaySign({ address: A }, "IssueKey"), {
    code: "screening_unavailable",
  });
});
