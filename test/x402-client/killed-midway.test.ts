// Goal: a process killed at any step of a fetch loses nothing: the same key, asked of another replica, ends in one payment or provably none.
// Runs alone: five servers boot and die in it, and it waits for the time after which a request counts as dead.
import { randomBytes } from "node:crypto";
import t, { type Test } from "tap";
import { asHeader, askedIn, asksByMpp, challengeOf } from "../mpp/mpp-sellers.ts";
import { askAgain as askUntilDead, fetchAndDie as doomedFetch } from "./doomed.ts";
import { assertLedgerIsChain, market, PAYEE, type Answered, type Market } from "./market.ts";
import type { Script } from "./scripted-seller.ts";
import { scriptedTools } from "./scripted-tools.ts";

const ENV = {
  MASTER_KEYS: `test:${randomBytes(32).toString("base64")}`,
  SETTLE_WAIT_MS: "1500",
  LOG_LEVEL: "silent",
};
/** The steps of a fetch, in order. */
const POINTS = ["reserved", "signed", "submitted", "answered", "confirmed"] as const;
const REQUEST = { timeoutMs: 1_500 };
/** The same without a key: the call itself is what the next one is known by. */
const KEYLESS = ["submitted", "confirmed"] as const;

const getOf =
  ({ seller }: Market) =>
  (point: string): object => ({ url: `${seller.origin}/${point}`, ...REQUEST });
const keyOf = (request: object): Record<string, string> => ({
  "idempotency-key": Buffer.from(JSON.stringify(request)).toString("base64url").slice(0, 250),
});

const fetchAndDie = (
  t: Test,
  made: Market,
  point: string,
  request: (point: string) => object = getOf(made),
  key: (request: object) => Record<string, string> = keyOf,
): Promise<void> => {
  const body = request(point);
  return doomedFetch(t, made, { point, body, headers: key(body), env: ENV });
};

/** Asks with the same key. */
const askAgain = (
  made: Market,
  point: string,
  request: (point: string) => object = getOf(made),
): Promise<Answered> => {
  const body = request(point);
  return askUntilDead(made, { body, headers: keyOf(body) }, 30_000);
};

t.test("killed at each step", async (t) => {
  const sold = new Set<string>();
  const made = await market(t, { env: ENV });
  const { seller } = made;
  const script: Script = {
    // Settles an authorization once, delivers for it again at /confirmed, and never again elsewhere.
    onProof: async ({ request, response, proof }) => {
      const { nonce } = proof.payload.authorization;
      if (sold.has(nonce) && !request.url?.endsWith("/confirmed"))
        return seller.refuse(response, seller.entry());
      if (!sold.has(nonce)) await seller.settle(proof);
      sold.add(nonce);
      response.writeHead(200).end("data");
    },
  };
  seller.script = script;

  for (const point of POINTS) await fetchAndDie(t, made, point);
  const keylessOf = (point: string) => getOf(made)(`keyless/${point}`);
  for (const point of KEYLESS) await fetchAndDie(t, made, point, keylessOf, () => ({}));
  // One call each, which waits by itself until the first one counts as dead.
  const keyless = KEYLESS.map((point) => made.fetch(keylessOf(point) as Record<string, unknown>));
  const answers = new Map<string, Answered>();
  for (const point of POINTS) answers.set(point, await askAgain(made, point));

  for (const point of ["reserved", "signed", "submitted", "confirmed"])
    t.match(answers.get(point), { status: 200, body: { paid: true, text: "data" } }, point);
  t.match(
    answers.get("answered"),
    { status: 502, body: { code: "paid_upstream_failed", txHash: /^0x/, amountPaid: "0.001" } },
    "the seller had its money, and would not deliver again",
  );
  for (const answer of await Promise.all(keyless))
    t.match(answer, { status: 200, body: { paid: true, text: "data", replayed: true } });
  const calls = POINTS.length + KEYLESS.length;
  t.equal(await made.balanceOf(PAYEE), BigInt(calls) * 1000n, "each was paid once");

  await t.test("a POST that may have arrived is not posted again", async (t) => {
    const ran: string[] = [];
    seller.script = {
      onProof: async ({ request, response, proof, body }) => {
        ran.push(`${request.method} ${request.url} ${body}`);
        await seller.settle(proof);
        response.writeHead(201, { location: "/orders/1" }).end("made");
      },
    };
    const postOf = (point: string): object => ({
      url: `${seller.origin}/post-${point}`,
      ...REQUEST,
      method: "POST",
      body: "1",
    });
    for (const point of ["answered", "confirmed"]) await fetchAndDie(t, made, point, postOf);
    t.match(
      await askAgain(made, "answered", postOf),
      {
        status: 502,
        body: {
          code: "paid_upstream_failed",
          detail: /POST may have reached the target once.*not sent again.*settled/,
          txHash: /^0x/,
          upstreamStatus: null,
        },
      },
      "its answer was lost: what is known is told",
    );
    t.match(
      await askAgain(made, "confirmed", postOf),
      {
        status: 200,
        body: { paid: true, status: 201, text: "made", headers: { location: "/orders/1" } },
      },
      "its answer was noted",
    );
    t.same(ran, ["POST /post-answered 1", "POST /post-confirmed 1"]);
    seller.script = script;
  });
  await t.test(
    "the challenge of MPP that was answered is answered again, and no other",
    async (t) => {
      let asked = 0;
      const charging = asksByMpp(seller, (nth) => {
        asked = nth;
        return asHeader(challengeOf(askedIn(made.chain, PAYEE)));
      });
      const mppOf = getOf(made)("mpp");
      await fetchAndDie(t, made, "submitted", () => mppOf);
      t.match(await askAgain(made, "submitted", () => mppOf), {
        status: 200,
        body: { paid: true, amountPaid: "0.001", data: { answer: 42 } },
      });
      t.same([asked, charging.credentials.length], [1, 1], "asked once, shown once");
      seller.script = script;
    },
  );

  await t.test("a tool that may have been called is not called again", async (t) => {
    const tools = await scriptedTools(t, seller);
    made.config.fetchPrivateOrigins.push(tools.origin);
    const callOf = (point: string): object => ({
      url: tools.url,
      mcp: { tool: "answer", arguments: { point } },
      ...REQUEST,
    });
    const outcomes = {
      submitted: {
        status: 502,
        body: { code: "upstream_error", paid: false, detail: /not sent again.*Nothing was paid/ },
      },
      answered: { status: 502, body: { code: "paid_upstream_failed", txHash: /^0x/ } },
      confirmed: { status: 200, body: { paid: true, data: { content: [{ text: "42" }] } } },
    };
    for (const [point, outcome] of Object.entries(outcomes)) {
      await fetchAndDie(t, made, point, callOf);
      t.match(await askAgain(made, point, callOf), outcome, point);
    }
    const called = tools.messages.filter(({ method }) => method === "tools/call");
    t.equal(called.length, 5, "asked three times, and run twice");
    t.equal(new Set(tools.proofs.map(({ payload }) => payload.authorization.nonce)).size, 2);
  });
  t.equal(sold.size, calls, "one authorization each reached the seller");
  t.equal(await made.reserved(), "0");
  await assertLedgerIsChain(t, made);

  for (const point of POINTS) {
    const again = await askAgain(made, point);
    t.match(again, {
      status: answers.get(point)?.status,
      body: { txHash: answers.get(point)?.body["txHash"] },
    });
    t.equal(again.headers["idempotent-replayed"], "true", `${point}: the answer is kept`);
  }
});
