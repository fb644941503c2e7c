// Goal: a process killed during a POST, an MPP payment, a payment bound to its route, or a tool call loses nothing: the same key, sent to another replica, ends in one payment or provably none.
// Tier: full (kills at every step of more kinds of fetch; the simulation finds "proof-shown-before-it-is-stored" and "post-is-sent-again" with every change).
import t from "tap";
import {
  asHeader,
  chargeRequest,
  challengeOf,
  mppxSeller,
  requestOverMpp,
  type MppxFacilitator,
} from "../mpp/mpp-sellers.ts";
import { assertStored, fetchAndDie, keyed, untilDead, type DoomedFetch } from "./doomed.ts";
import { assertLedgerIsChain, market, PAYEE, type Answered } from "./market.ts";
import { scriptedSeller } from "./scripted-seller.ts";
import { scriptedTools } from "./scripted-tools.ts";
import { stockFacilitator, V1_NAME } from "./stock-sellers.ts";

const ENV = { SETTLE_WAIT_MS: "5000", LOG_LEVEL: "silent" };

const made = await market(t, { env: ENV });
const { seller } = made;
const posted: string[] = [];
seller.script = {
  onProof: async ({ request, response, proof, body }) => {
    posted.push(`${request.url} ${body}`);
    await seller.settle(proof);
    response.writeHead(201, { location: "/orders/1" }).end("made");
  },
};
const mppSeller = await scriptedSeller(t, made.chain, PAYEE);
// One account pays all the gas, so all transactions use one nonce sequence.
mppSeller.settle = (proof) => seller.settle(proof);
let challenged = 0;
const charging = requestOverMpp(mppSeller, (nth) => {
  challenged = nth;
  return asHeader(challengeOf(chargeRequest(made.chain, PAYEE)));
});
const tools = await scriptedTools(t, seller);
const [, facilitatorAccount] = made.chain.accounts;
if (!facilitatorAccount) throw new Error("the test chain has no accounts");
const boundSeller = await mppxSeller(t, {
  chain: made.chain,
  payTo: PAYEE,
  facilitator: stockFacilitator(
    made.chain,
    facilitatorAccount,
    V1_NAME,
  ) as unknown as MppxFacilitator,
  offersX402: true,
  boundTo: "GET /paid",
});
made.config.fetchPrivateOrigins.push(mppSeller.origin, tools.origin, boundSeller.origin);

const posts = ["answered", "confirmed"].map((point) =>
  keyed(point, `post ${point}`, {
    url: `${seller.origin}/post-${point}`,
    method: "POST",
    body: "1",
  }),
);
const mpp = keyed("submitted", "mpp", { url: `${mppSeller.origin}/mpp` });
const bound = keyed("submitted", "bound", { url: boundSeller.url });
const toolCalls = ["submitted", "answered", "confirmed"].map((point) =>
  keyed(point, `tool ${point}`, { url: tools.url, mcp: { tool: "answer", arguments: { point } } }),
);

const repeat = ({ body, headers }: DoomedFetch): Promise<Answered> => made.fetch(body, headers);
const repeatAt = async (fetches: readonly DoomedFetch[], point: string): Promise<Answered> => {
  const found = fetches.find((one) => one.point === point);
  if (!found) throw new Error(`none was killed at ${point}`);
  return repeat(found);
};

await fetchAndDie(t, made, [...posts, mpp, bound, ...toolCalls], ENV);
await untilDead(made);

await t.test("a POST that may have arrived is not posted again", async (t) => {
  t.match(
    await repeatAt(posts, "answered"),
    {
      status: 502,
      body: {
        code: "paid_upstream_failed",
        detail: /POST may have reached the target.*not sent again.*settled/,
        txHash: /^0x/,
        upstreamStatus: null,
      },
    },
    "its response was lost: the known facts are returned",
  );
  t.match(
    await repeatAt(posts, "confirmed"),
    {
      status: 200,
      body: { paid: true, status: 201, text: "made", headers: { location: "/orders/1" } },
    },
    "its response was recorded",
  );
  t.same(posted, ["/post-answered 1", "/post-confirmed 1"]);
});

await t.test("a paid MPP challenge is answered again, and no new one is requested", async (t) => {
  t.match(await repeat(mpp), {
    status: 200,
    body: { paid: true, amountPaid: "0.001", data: { answer: 42 } },
  });
  t.same([challenged, charging.credentials.length], [1, 1], "one challenge, one credential");
});

await t.test("a payment bound to its route is shown with the same binding", async (t) => {
  const answer = await repeat(bound);
  t.match(answer, { status: 200, body: { paid: true, data: { sold: "mppx" } } }, answer.text);
  t.equal(boundSeller.sold(), 1);
});

await t.test("a tool that may have been called is not called again", async (t) => {
  const outcomes = {
    submitted: {
      status: 502,
      body: { code: "upstream_error", paid: false, detail: /not sent again.*Nothing was paid/ },
    },
    answered: { status: 502, body: { code: "paid_upstream_failed", txHash: /^0x/ } },
    confirmed: { status: 200, body: { paid: true, data: { content: [{ text: "42" }] } } },
  };
  for (const [point, outcome] of Object.entries(outcomes))
    t.match(await repeatAt(toolCalls, point), outcome, `killed when ${point}`);
  const called = tools.messages.filter(({ method }) => method === "tools/call");
  t.equal(called.length, 5, "called for three quotes, and run twice");
  t.equal(new Set(tools.proofs.map(({ payload }) => payload.authorization.nonce)).size, 2);
});

await t.test("each was paid once, and its answer is stored", async (t) => {
  // Two POSTs, one MPP payment, one bound to its route, and the two tool calls that ran.
  t.equal(await made.balanceOf(PAYEE), BigInt(2 + 1 + 1 + 2) * 1000n);
  t.equal(await made.reserved(), "0");
  await assertLedgerIsChain(t, made);
  const shown = (): number =>
    seller.proofs.length + tools.proofs.length + charging.credentials.length;
  const before = shown();
  for (const one of [...posts, mpp, bound, ...toolCalls]) await assertStored(t, made, one);
  t.equal(shown(), before, "no seller received a proof for that");
});
