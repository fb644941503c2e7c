// Goal: every offered way to pay is accepted, and of a maximum exactly the amount used is charged, once,
// before the response is sent.
// Tier: full (tries every variant of one feature).
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import type { FacilitatorClient } from "@x402/core/server";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import { create as createAxios } from "axios";
import Fastify, { type FastifyInstance } from "fastify";
import { Readable } from "node:stream";
import t from "tap";
import type { Hex } from "viem";
import {
  EXACT_EIP3009,
  EXACT_PERMIT2,
  OneProcessStore,
  paywall,
} from "../../packages/paywall/src/paywall.ts";
import { testApp } from "../helpers/app.ts";
import type { TestChain } from "../helpers/chain.ts";
import { until } from "../helpers/until.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import {
  ALL_SCHEMES,
  balanceOf,
  newAccount,
  openShop,
  overPermit2,
  fetchUntilSettled,
  proofOf,
  stockPayer,
} from "./shop.ts";
import { referenceFacilitator } from "./stock.ts";

const UP_TO = { price: { upTo: "0.05" }, description: "Words, by the word" };
const MAXIMUM = 50_000n;

/** The events at the merchant, in order. */
const log: string[] = [];
let gate: Promise<void> | undefined;

function routes(app: FastifyInstance): void {
  app.get("/joke", { config: { paywall: { price: "0.01" } } }, async (request) => ({
    payer: request.payment?.payer,
    kind: request.payment?.kind,
  }));
  app.get("/words", { config: { paywall: UP_TO } }, async (request, reply) => {
    const { used = "0.0123" } = request.query as { used?: string };
    log.push("worked");
    await gate;
    void reply.header("x-words", "three");
    request.payment?.charge(used);
    return { words: 3, payer: request.payment?.payer, maximum: request.payment?.maximum };
  });
  app.get("/stream", { config: { paywall: UP_TO } }, async (request, reply) => {
    request.payment?.charge(20_000n);
    return reply.type("text/plain").send(Readable.from(["one ", "two ", "three"]));
  });
  app.get("/silent", { config: { paywall: UP_TO } }, async () => ({ words: 3 }));
  app.get("/broken", { config: { paywall: UP_TO } }, async (request) => {
    request.payment?.charge("0.01");
    throw new Error("after the charge was set");
  });
  app.get("/sorry", { config: { paywall: UP_TO } }, async (request, reply) => {
    request.payment?.charge("0.01");
    return reply.code(422).send({ sorry: true });
  });
  app.get("/fixed", { config: { paywall: { price: "0.01" } } }, async (request) => {
    request.payment?.charge("0.01");
    return {};
  });
  app.get("/twice", { config: { paywall: UP_TO } }, async (request) => {
    request.payment?.charge("0.01");
    request.payment?.charge("0.02");
    return {};
  });
}

const receiptOf = (answer: Response) =>
  decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
const termsOf = async (url: string) => {
  const answer = await fetch(url);
  return {
    required: decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? ""),
    body: (await answer.json()) as { accepts: { extra: Record<string, unknown> }[] },
  };
};

const our = await testApp(t, { listen: true });
const { chain } = our;

const FACILITATORS: Record<string, () => FacilitatorClient | string> = {
  ours: () => `${our.baseUrl}/api/x402`,
  "the reference": () => referenceFacilitator(chain),
};

for (const [name, facilitator] of Object.entries(FACILITATORS)) {
  t.test(`through ${name}`, async (t) => {
    const { origin, payTo, logged } = await openShop(t, chain, facilitator(), routes);
    const payer = newAccount();
    await chain.mint(payer.address, 1_000_000n);
    const paying = wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer));
    const paid = () => balanceOf(chain, payTo);

    await t.test("one 402 offers both ways to pay, EIP-3009 first", async (t) => {
      const { required, body } = await termsOf(`${origin}/joke`);
      t.match(required.accepts, [
        { scheme: "exact", extra: { name: "USDC", paymentFlow: "upfront" } },
        { scheme: "exact", extra: { assetTransferMethod: "permit2", paymentFlow: "upfront" } },
      ]);
      t.equal(required.accepts[0]?.extra["assetTransferMethod"], undefined);
      t.equal(required.accepts.length, 2);
      t.match(required.extensions, { eip2612GasSponsoring: { info: {}, schema: {} } });
      t.equal(body.accepts.length, 1, "version 1 gets the terms that it can pay");
      t.notMatch(JSON.stringify(body.accepts), "permit2");
    });

    await t.test("no work for a payment that is valid for longer than requested", async (t) => {
      const client = stockPayer(chain, payer);
      const now = t.capture(
        Date,
        "now",
        () => performance.timeOrigin + performance.now() + 600_000,
      );
      const proof = await proofOf(client, `${origin}/words`);
      now.restore();
      log.length = 0;
      const answer = await fetch(`${origin}/words`, { headers: proof });
      t.equal(answer.status, 402);
      t.match(receiptOf(answer), { success: false, errorReason: "invalid_payload" });
      t.same(log, []);
    });

    await t.test("a stock client pays over Permit2 without gas or an allowance", async (t) => {
      const before = await paid();
      const client = stockPayer(chain, payer, overPermit2);
      const answer = await wrapFetchWithPayment(fetchUntilSettled, client)(`${origin}/joke`);
      t.same(await answer.json(), { payer: payer.address, kind: "settled" });
      t.match(receiptOf(answer), { success: true, payer: payer.address });
      t.equal((await paid()) - before, 10_000n);
      const headers = await proofOf(client, `${origin}/joke`);
      t.equal((await fetchUntilSettled(`${origin}/joke`, { headers })).status, 200);
      t.equal((await fetch(`${origin}/joke`, { headers })).status, 402, "once");
      t.equal((await paid()) - before, 20_000n);
    });

    await t.test("of a maximum, the amount used is settled before the response", async (t) => {
      const before = await paid();
      const { required, body } = await termsOf(`${origin}/words`);
      t.match(required.accepts, [
        { scheme: "upto", amount: String(MAXIMUM), extra: { facilitatorAddress: /^0x/ } },
      ]);
      t.equal(required.accepts[0]?.extra["paymentFlow"], undefined);
      t.same(body.accepts, [], "nothing that version 1 can pay");
      const answer = await paying(`${origin}/words`);
      t.equal(answer.status, 200);
      t.same(await answer.json(), {
        words: 3,
        payer: payer.address,
        maximum: String(MAXIMUM),
      });
      const receipt = receiptOf(answer);
      t.match(receipt, { success: true, payer: payer.address, amount: "12300" });
      const hash = receipt.transaction as Hex;
      t.equal((await chain.publicClient.getTransactionReceipt({ hash })).status, "success");
      t.equal((await paid()) - before, 12_300n);
    });

    await t.test("the stock axios client too; a stream waits for its payment", async (t) => {
      const before = await paid();
      const api = wrapAxiosWithPayment(createAxios(), stockPayer(chain, payer) as never);
      const answer = await api.get<string>(`${origin}/stream`);
      t.equal(answer.data, "one two three");
      t.equal((await paid()) - before, 20_000n);
    });

    await t.test("if nothing was used, nothing is settled, with a receipt", async (t) => {
      const before = await paid();
      const url = `${origin}/words?used=0`;
      const answer = await paying(url);
      t.equal(answer.status, 200);
      const headers = await proofOf(stockPayer(chain, payer), url);
      for (const time of ["once", "and again: the proof is as good as before"])
        t.equal((await fetch(url, { headers })).status, 200, time);
      t.match(receiptOf(answer), { success: true, transaction: "", amount: "0" });
      t.equal(await paid(), before);
    });

    await t.test("work that fails, or never sets the amount used, costs nothing", async (t) => {
      const before = await paid();
      for (const [path, status, served] of [
        ["/broken", 500, /after the charge was set/],
        ["/sorry", 422, /sorry/],
        ["/twice", 500, /set only once/],
        ["/words?used=0.050001", 500, /more than/],
        ["/words?used=-1", 500, /must be/],
        ["/fixed", 500, /fixed price/],
        ["/silent", 500, /did not set the charge/],
      ] as const) {
        const answer = await paying(`${origin}${path}`);
        t.equal(answer.status, status, path);
        if (path !== "/fixed") t.equal(answer.headers.get("payment-response"), null, path);
        t.match(await answer.text(), served, path);
      }
      t.match(logged.join(""), "GET /silent");
      t.equal(
        await paid(),
        before + 10_000n,
        "but the fixed price is charged, because it is settled first",
      );
    });

    await t.test("a proof in use, and a used one, get no response", async (t) => {
      const before = await paid();
      const url = `${origin}/words`;
      const headers = await proofOf(stockPayer(chain, payer), url);
      log.length = 0;
      let open = () => {};
      gate = new Promise((resolve) => (open = resolve));
      let refused = 0;
      const shown = Array.from({ length: 20 }, async () => {
        const answer = await fetchUntilSettled(url, { headers });
        if (answer.status === 402) refused += 1;
        return answer;
      });
      await until(() => refused === 19 && log.length > 0);
      t.same(log, ["worked"], "one payment does not do the work twice");
      open();
      const answers = await Promise.all(shown);
      gate = undefined;
      t.equal(answers.filter(({ status }) => status === 200).length, 1);
      for (const answer of answers.filter(({ status }) => status !== 200))
        t.match(receiptOf(answer), { success: false, errorReason: "duplicate_settlement" });
      const again = await fetch(url, { headers });
      t.equal(again.status, 402);
      t.equal(again.headers.get("payment-required"), null, "no request to pay a second time");
      t.equal(again.headers.get("x-words"), null);
      t.match(receiptOf(again), { success: false, errorReason: /./ });
      t.same(log, ["worked"]);
      const elsewhere = await fetch(`${url}?used=0.05`, { headers });
      t.match(receiptOf(elsewhere), { success: false, errorReason: "duplicate_settlement" });
      t.equal((await paid()) - before, 12_300n);
    });

    await t.test("an invalid payment is refused before any work", async (t) => {
      log.length = 0;
      const url = `${origin}/words`;
      const poor = await proofOf(stockPayer(chain, newAccount()), url);
      const answer = await fetch(url, { headers: poor });
      t.equal(answer.status, 402);
      t.match(receiptOf(answer), { success: false, errorReason: /balance|allowance/ });
      const cheaper = await proofOf(stockPayer(chain, payer), `${origin}/joke`);
      t.equal((await fetch(url, { headers: cheaper })).status, 402);
      t.same(log, []);
    });

    await t.test("if the money is gone after the work, the response is withheld", async (t) => {
      const before = await paid();
      const spender = newAccount();
      await chain.mint(spender.address, MAXIMUM);
      await approvePermit2(chain, [spender]);
      const headers = await proofOf(stockPayer(chain, spender), `${origin}/words`);
      let open = () => {};
      gate = new Promise((resolve) => (open = resolve));
      const pending = fetch(`${origin}/words`, { headers });
      await until(() => log.includes("worked"));
      await emptied(chain, spender);
      open();
      gate = undefined;
      const answer = await pending;
      t.equal(answer.status, 402);
      t.match(receiptOf(answer), { success: false, errorReason: /./ });
      t.notMatch(await answer.text(), /words/);
      t.equal(answer.headers.get("x-words"), null, "nothing of the response is sent");
      t.equal(await paid(), before);
      t.match(logged.join(""), "the response is withheld");
    });
  });
}

/** Moves the payer's money away, as the payer may at any time. */
async function emptied(chain: TestChain, account: ReturnType<typeof newAccount>): Promise<void> {
  const client = stockPayer(chain, account, ({ scheme }) => scheme === "exact");
  const sink = await openShop(
    { teardown: (fn: () => unknown) => void sinks.push(fn) },
    chain,
    referenceFacilitator(chain),
    (app) => void app.get("/", { config: { paywall: { price: "0.05" } } }, async () => ({})),
  );
  const answer = await wrapFetchWithPayment(fetchUntilSettled, client)(sink.origin);
  if (answer.status !== 200) throw new Error("the account could not be emptied");
}
const sinks: (() => unknown)[] = [];
t.teardown(async () => {
  for (const close of sinks) await close();
});

t.test("after an unknown outcome, the same proof gets the same response, once", async (t) => {
  const reference = referenceFacilitator(chain);
  let mode: "loses answers" | "pending" | "works" = "works";
  let settles = 0;
  const known = new Map<string, Awaited<ReturnType<FacilitatorClient["settle"]>>>();
  const facilitator: FacilitatorClient = {
    getSupported: () => reference.getSupported(),
    verify: (payload, requirements) => reference.verify(payload, requirements),
    // Returns a success once, as our facilitator does. If that response was lost, a repeat of the same
    // request returns it.
    async settle(payload, requirements) {
      settles += 1;
      const key = JSON.stringify([payload, requirements]);
      const answer = known.get(key) ?? (await reference.settle(payload, requirements));
      known.set(key, answer);
      if (mode === "loses answers") throw new Error("connection reset");
      if (mode === "pending")
        return { ...answer, success: false, errorReason: "settlement_pending" };
      return answer;
    },
  };
  let worked = 0;
  const { origin, payTo } = await openShop(t, chain, facilitator, (app) => {
    app.get("/n", { config: { paywall: UP_TO } }, async (request, reply) => {
      request.payment?.charge("0.01");
      worked += 1;
      void reply.header("x-secret", "of the answer");
      return { worked };
    });
  });
  const payer = newAccount();
  await chain.mint(payer.address, 1_000_000n);
  for (const [how, status] of [
    ["loses answers", 502],
    ["pending", 402],
  ] as const) {
    const before = await balanceOf(chain, payTo);
    const url = `${origin}/n`;
    const headers = await proofOf(stockPayer(chain, payer), url);
    mode = how;
    const lost = await fetch(url, { headers });
    t.equal(lost.status, status, how);
    t.notMatch(await lost.text(), "worked");
    t.equal(lost.headers.get("x-secret"), null);
    const made = worked;
    mode = "works";
    const found = await fetch(url, { headers });
    t.equal(found.status, 200, how);
    t.same(await found.json(), { worked: made }, "the response that was made then");
    t.equal(found.headers.get("x-secret"), "of the answer");
    t.match(receiptOf(found), { success: true, amount: "10000" });
    t.equal(worked, made, "without doing the work again");
    t.equal((await balanceOf(chain, payTo)) - before, 10_000n);
  }
  t.ok(settles >= 4);
});

t.test("two processes that work for one proof: one is paid, and responds", async (t) => {
  for (const [first, second] of [
    ["0.01", "0.01"],
    ["0.01", "0.03"],
  ] as const) {
    const store = new OneProcessStore();
    const payTo = newAccount().address;
    const replicas = [];
    let working = 0;
    for (const used of [first, second]) {
      const options = { payTo, store, publicUrl: "http://shop.example" };
      const addRoutes = (app: FastifyInstance): void =>
        void app.get("/n", { config: { paywall: UP_TO } }, async (request) => {
          working += 1;
          await until(() => working === 2);
          request.payment?.charge(used);
          return { used };
        });
      replicas.push(await openShop(t, chain, `${our.baseUrl}/api/x402`, addRoutes, options));
    }
    const payer = newAccount();
    await chain.mint(payer.address, 1_000_000n);
    const headers = await proofOf(stockPayer(chain, payer), `${replicas[0]?.origin}/n`);
    const answers = await Promise.all(
      replicas.map(({ origin }) => fetchUntilSettled(`${origin}/n`, { headers })),
    );
    const [answer, ...more] = answers.filter(({ status }) => status === 200);
    t.equal(more.length, 0);
    if (!answer) throw new Error("no process responded");
    const { used } = (await answer.json()) as { used: string };
    t.equal(await balanceOf(chain, payTo), used === "0.01" ? 10_000n : 30_000n);
    const loser = answers.find(({ status }) => status === 402);
    t.match(loser && receiptOf(loser), { success: false, errorReason: "duplicate_settlement" });
  }
});

t.test("sponsored gas for an allowance is announced if the facilitator announces it", async (t) => {
  const reference = referenceFacilitator(chain);
  for (const extensions of [[], ["erc20ApprovalGasSponsoring", "eip2612GasSponsoring", "x"]]) {
    const { origin } = await openShop(
      t,
      chain,
      {
        ...reference,
        getSupported: async () => ({ ...(await reference.getSupported()), extensions }),
      },
      routes,
    );
    for (const path of ["/joke", "/words"]) {
      const { required } = await termsOf(`${origin}${path}`);
      t.same(
        Object.keys(required.extensions ?? {}).toSorted(),
        extensions.filter((name) => name !== "x").toSorted(),
      );
    }
  }
});

t.test("invalid configuration is refused at startup", async (t) => {
  const options = { facilitator: referenceFacilitator(chain), payTo: chain.usdc };
  const fixed = Fastify();
  await fixed.register(paywall, {
    ...options,
    networks: [`eip155:${chain.chainId}`],
    schemes: [EXACT_EIP3009, EXACT_PERMIT2],
  });
  t.throws(() => fixed.get("/", { config: { paywall: UP_TO } }, async () => ({})), /by use/);
  const app = Fastify();
  await app.register(paywall, { ...options, networks: [`eip155:${chain.chainId}`] });
  const again = { price: "0.01", again: { for: "1h" } };
  t.throws(() => app.get("/", { config: { paywall: again } }, async () => ({})), /store/);
  t.equal(ALL_SCHEMES.length, 3);
});
