// Goal: a response that is small compressed but expands to much JSON yields a bounded answer, and does not affect other owners.
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { parseMembers } from "../../server/core/exact-json.ts";
import { BUDGET } from "../../server/plugins/x402-client/budget.ts";
import { spendAs } from "../helpers/call.ts";
import { isFullTier } from "../helpers/tier.ts";
import { messageOf } from "../helpers/mcp-answer.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { assertLedgerIsChain, market, PAYEE, type Market } from "./market.ts";
import type { Script } from "./scripted-seller.ts";
import { scriptedTools } from "./scripted-tools.ts";

const MIB = 1024 * 1024;
const LONGEST = 5 * MIB;
/** Base64 of the longest response, and the other members of our answer. */
const MOST_CHARS = (4 * LONGEST) / 3 + 64 * 1024;

/** A body of the largest size that is read, filled with bytes that grow most in JSON. */
const repeated = (part: string, before = "", after = ""): Buffer => {
  const room = LONGEST - before.length - after.length;
  return Buffer.from(before + part.repeat(Math.floor(room / part.length)) + after, "latin1");
};
const controls = String.fromCharCode(...Array.from({ length: 32 }, (_, code) => code));

const ESCAPES = ["\\u0000", '"', '"'] as const;

interface Bomb {
  name: string;
  type: string;
  body: Buffer;
}
const ALL_BOMBS: readonly Bomb[] = [
  { name: "NULs", type: "text/plain", body: Buffer.alloc(LONGEST) },
  { name: "control characters", type: "text/plain", body: repeated(controls) },
  { name: "quotes", type: "text/plain", body: repeated('"') },
  { name: "line ends", type: "text/html", body: repeated("\r\n") },
  {
    name: "euro signs of one byte",
    type: "text/plain; charset=windows-1252",
    body: repeated("\x80"),
  },
  { name: "invalid UTF-8", type: "text/plain", body: repeated("\xff") },
  { name: "invalid UTF-8 called JSON", type: "application/json", body: repeated("\xff", '"', '"') },
  { name: "NULs called JSON", type: "application/json", body: Buffer.alloc(LONGEST) },
  { name: "JSON full of escapes", type: "application/json", body: repeated(...ESCAPES) },
  { name: "JSON full of quotes", type: "application/json", body: repeated('\\"', '["', '"]') },
  { name: "many tiny elements", type: "application/json", body: repeated("[],", "[", "0]") },
  { name: "many keys", type: "application/json", body: repeated('"\\u0001":1.0,', "{", '"a":0}') },
  {
    name: "deep JSON",
    type: "application/json",
    body: Buffer.concat([Buffer.alloc(LONGEST / 2, "["), Buffer.alloc(LONGEST / 2, "]")]),
  },
];

const QUICK = ["NULs", "quotes", "JSON full of quotes", "many tiny elements"];
const BOMBS = ALL_BOMBS.filter(({ name }) => isFullTier || QUICK.includes(name));

/** Extracts the target's content from our answer. */
function contentOf(t: Test, answer: Record<string, unknown>, type: string): Buffer {
  const { text, data, dataBase64 } = answer;
  const given = [text, data, dataBase64].filter((one) => one !== undefined);
  t.equal(given.length, 1, "once");
  if (typeof dataBase64 === "string") return Buffer.from(dataBase64, "base64");
  const charset = type.includes("windows-1252") ? "latin1" : "utf8";
  if (typeof text === "string") return Buffer.from(text, charset);
  // JSON: the exact text in our answer.
  return Buffer.from((data as { text?: string }).text ?? JSON.stringify(data));
}

const isSame = (left: Buffer, right: Buffer): boolean => Buffer.compare(left, right) === 0;

const sends = ({ type, body }: Pick<Bomb, "type" | "body">): Script["onUnpaid"] => {
  const packed = gzipSync(body);
  return ({ response }) =>
    void response.writeHead(200, { "content-type": type, "content-encoding": "gzip" }).end(packed);
};

/** All memory budget held by this agent's fetches was released. */
function assertNothingIsHeld(t: Test, { app }: Market): void {
  const lease = app.fetchBudget.enter({ agentId: "another", ownerId: "another" });
  const rest = app.fetchBudget.enter({ agentId: "rest", ownerId: "rest" });
  t.ok(lease.take(BUDGET.bytesPerAgent) && rest.take(BUDGET.bytesPerAgent));
  lease.end();
  rest.end();
}

t.test("the longest responses", async (t) => {
  const made = await market(t, {
    timings: { fetchRoomMs: 500 },
    // A limit for hangs: ten of the longest responses keep a slow machine busy for seconds.
    env: { SETTLE_WAIT_MS: "25000" },
  });
  const { seller, app, agent, chain, database } = made;
  const { ownerId } = await app.prisma.agent.findUniqueOrThrow({ where: { id: agent.id } });
  /** Another fetch of this agent holds its whole budget. */
  const fill = () => {
    const lease = app.fetchBudget.enter({ agentId: agent.id, ownerId });
    t.ok(lease.take(BUDGET.bytesPerAgent));
    return lease;
  };

  await t.test("each is bounded, and its data is complete", async (t) => {
    for (const bomb of BOMBS) {
      seller.script = { onUnpaid: sends(bomb) };
      const { status, text } = await made.fetch({ url: seller.url });
      t.equal(status, 200, bomb.name);
      t.ok(text.length <= MOST_CHARS, `${bomb.name}: ${text.length} characters`);
      t.ok(isSame(contentOf(t, parseMembers(text), bomb.type), bomb.body), `${bomb.name}: intact`);
    }
  });

  await t.test("ten at once do not hinder another owner, and release their budget", async (t) => {
    const other = await createAgent(made, await signIn(made), { allowlist: [PAYEE] });
    await chain.mint(other.walletAddress, 1_000_000n);
    const [bomb] = BOMBS;
    if (!bomb) throw new Error("no bomb");
    seller.script = { onUnpaid: sends(bomb) };
    const fetches = Array.from({ length: 10 }, () => made.fetch({ url: seller.url }));
    const spent = await spendAs(app, other, { recipient: PAYEE, amount: "0.01" });
    t.equal(spent.statusCode, 200, spent.body);
    let chars = 0;
    for (const { status, body, text } of await Promise.all(fetches)) {
      chars += text.length;
      if (status !== 200)
        t.match({ status, body }, { status: 429, body: { code: "fetch_capacity" } });
    }
    t.ok(chars <= 10 * MOST_CHARS, `${chars} characters in all`);
    assertNothingIsHeld(t, made);
  });

  await t.test("an owner's agents have a bound, and another owner still has room", async (t) => {
    const leases = Array.from({ length: 10 }, (_, nth) =>
      app.fetchBudget.enter({ agentId: `agent ${nth}`, ownerId: "one" }),
    );
    const taken = leases.filter((lease) => lease.take(BUDGET.bytesPerAgent));
    t.equal(taken.length, BUDGET.bytesPerOwner / BUDGET.bytesPerAgent);
    t.match(leases.at(-1)?.refusal, { code: "fetch_capacity", extra: { scope: "owner" } });
    seller.script = { onUnpaid: sends(BOMBS[0] as Bomb) };
    t.match(await made.fetch({ url: seller.url }), { status: 200 });
    for (const lease of leases) lease.end();
  });

  await t.test("a stored answer is returned again only where the budget has room", async (t) => {
    const body = repeated(...ESCAPES);
    seller.script = {
      onProof: async ({ response, proof }) => {
        await seller.settle(proof);
        response.writeHead(200, { "content-type": "application/json" }).end(body);
      },
    };
    const key = { "idempotency-key": "long" };
    const first = await made.fetch({ url: seller.url }, key);
    t.match(first, { status: 200, body: { paid: true } });
    const { rows } = await database.pool.query<{ bytes: number }>(
      "SELECT octet_length(response) AS bytes FROM idempotency_keys WHERE key = 'long'",
    );
    t.ok((rows[0]?.bytes ?? MOST_CHARS + 1) <= MOST_CHARS, `${rows[0]?.bytes} bytes kept`);
    const full = fill();
    const paymentId = first.body["paymentId"];
    t.match(await made.fetch({ url: seller.url }, key), {
      status: 409,
      body: { code: "idempotency_in_progress", paymentId },
    });
    full.end();
    const again = await made.fetch({ url: seller.url }, key);
    t.equal(again.text, first.text);
    t.equal(seller.proofs.length, 1);

    const cached = { url: `${seller.origin}/cached`, maxAge: 600 };
    const bought = await made.fetch(cached);
    t.match(bought, { status: 200, body: { paid: true } });
    const fuller = fill();
    t.match(await made.fetch(cached), { status: 429, body: { code: "fetch_capacity" } });
    fuller.end();
    const replayed = await made.fetch(cached);
    t.match(replayed, { status: 200, body: { cached: true } });
    t.same(replayed.body["data"], bought.body["data"]);
    t.equal(seller.proofs.length, 2);
    assertNothingIsHeld(t, made);
  });

  const callTool = async (params: object, method = "tools/call") => {
    const answer = await app.inject({
      method: "POST",
      url: "/mcp",
      headers: { ...agent.headers, accept: "application/json, text/event-stream" },
      payload: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
    t.equal(answer.statusCode, 200);
    return answer;
  };

  await t.test("over MCP too, also where nothing is stored", async (t) => {
    for (const bomb of BOMBS.filter(({ name }) => QUICK.includes(name))) {
      seller.script = { onUnpaid: sends(bomb) };
      const { body } = await callTool({ name: "x402_fetch", arguments: { url: seller.url } });
      t.ok(body.length <= 2 * MOST_CHARS, `${bomb.name}: ${body.length} characters`);
      const { result } = messageOf({ body }) as { result: { content: { text: string }[] } };
      t.notOk("structuredContent" in result, "once");
      const own = JSON.parse(result.content[0]?.text ?? "") as Record<string, unknown>;
      for (const name of ["text", "data", "dataBase64"]) t.notOk(name in own, "once");
      t.match(own, { paid: false, delivered: true });
      const thirdPartyText = result.content.at(-1)?.text ?? "";
      t.match(thirdPartyText.slice(0, 20), /^UNTRUSTED/);
      const content = contentOf(
        t,
        parseMembers(thirdPartyText.slice(thirdPartyText.indexOf("\n"))),
        bomb.type,
      );
      t.ok(isSame(content, bomb.body), `${bomb.name}: intact`);
    }
    assertNothingIsHeld(t, made);
    const full = fill();
    const uri = "purser://answers/long";
    t.match(messageOf(await callTool({ uri }, "resources/read")), { error: { code: Number } });
    full.end();
    const read = messageOf(await callTool({ uri }, "resources/read")) as {
      result: { contents: { text: string }[] };
    };
    t.equal(read.result.contents.at(-1)?.text.length, repeated(...ESCAPES).length);
    assertNothingIsHeld(t, made);
  });

  await t.test("a tool's result that is not UTF-8 does not grow", async (t) => {
    const before = Buffer.from('{"jsonrpc":"2.0","id":2,"result":{"content":[],"bomb":"');
    const after = Buffer.from('"}}');
    const filler = Buffer.alloc(LONGEST - before.length - after.length, 0xff);
    const tools = await scriptedTools(t, seller, {
      onUnpaid: ({ response }) =>
        void response
          .writeHead(200, { "content-type": "application/json" })
          .end(Buffer.concat([before, filler, after])),
    });
    app.config.fetchPrivateOrigins.push(tools.origin);
    const { status, text } = await made.fetch({ url: tools.url, mcp: { tool: "any" } });
    t.equal(status, 502);
    t.ok(text.length <= MOST_CHARS);
  });

  await assertLedgerIsChain(t, made);
});
