// Goal: a settled payment returns success to one caller only, in any order of requests and after a lost response;
// and a signature that is public on chain buys nothing.
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { Address, Hex } from "viem";
import { newId } from "../../server/core/ids.ts";
import { inTransaction } from "../../server/infra/db/pool.ts";
import { AMPLE_GAS, testApp, type TestApp } from "../helpers/app.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { post, signedPayment, type Body } from "./payments.ts";
import { permit2Payment } from "./permit2-payments.ts";
import { post as postTo, startReplica } from "../spending/replica.helper.ts";

type Authorization = Record<
  "from" | "to" | "value" | "validAfter" | "validBefore" | "nonce",
  string
>;

/** Here an agent's settlement has no payment: the database would refuse it as one whose reservation is gone. */
const acceptAlone = ({ database }: TestApp) =>
  database.pool.query("ALTER TABLE settlements DISABLE TRIGGER settlements_accepted");

/** Stores the payment as Purser does for its own agent, before the proof is sent to a seller. */
async function acceptOwnPayment(
  { app, chain }: TestApp,
  body: Body,
  kind: "spend" | "x402",
  id: string,
): Promise<void> {
  const { authorization, signature } = body.paymentPayload["payload"] as {
    authorization: Authorization;
    signature: Hex;
  };
  await inTransaction(app.pool, (sql) =>
    app.settlement.accept(sql, {
      id,
      kind,
      agentId: "agt_test",
      relay: kind === "spend",
      authorization: {
        chainId: chain.chainId,
        asset: chain.usdc,
        from: authorization.from as Hex,
        to: authorization.to as Hex,
        value: BigInt(authorization.value),
        validAfter: BigInt(authorization.validAfter),
        validBefore: BigInt(authorization.validBefore),
        nonce: authorization.nonce as Hex,
        signature,
      },
    }),
  );
}

t.test("success after a lost response, and for a public signature", async (t) => {
  const world = await testApp(t);
  await acceptAlone(world);
  const { app, chain } = world;
  const payer: PrivateKeyAccount = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const make = (): Promise<Body> => signedPayment({ chain, payer, payTo });

  await t.test("a response lost with a key is returned to a retry with the key", async (t) => {
    const body = await make();
    const lost = await app.facilitator.settle(body, { idempotencyKey: "k", isGone: () => true });
    t.not(lost.success, true, "the caller was gone");
    t.match(await post(app, "settle", body), { errorReason: "duplicate_settlement" });
    const headers = { "idempotency-key": "k" };
    const answer = await post(app, "settle", body, headers);
    t.match(answer, { success: true, transaction: lost.transaction });
    t.same(await post(app, "settle", body, headers), answer);
  });

  await t.test("a response lost without a key is returned once more, to one caller", async (t) => {
    const body = await make();
    await app.facilitator.settle(body, { isGone: () => true });
    const answers = await Promise.all(Array.from({ length: 10 }, () => post(app, "settle", body)));
    t.equal(answers.filter(({ success }) => success === true).length, 1);
  });

  await t.test("a payment of Purser's own agent is attached, not paid twice", async (t) => {
    const body = await make();
    await acceptOwnPayment(world, body, "x402", "pay_own_x402");
    const answer = await post(app, "settle", body);
    t.match(answer, { success: true, paymentId: "pay_own_x402" });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "duplicate_settlement",
      transaction: answer["transaction"],
    });
  });

  await t.test("a spend's signature buys nothing although it is public on chain", async (t) => {
    const body = await make();
    await acceptOwnPayment(world, body, "spend", "pay_own_spend");
    const outcome = await app.settlement.wait("pay_own_spend", 10_000);
    t.equal(outcome.status, "settled");
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "duplicate_settlement",
      transaction: /^0x/,
    });
    t.equal((await app.inject("/api/x402/payments/pay_own_spend")).statusCode, 404);
  });

  await t.test("a payment settled elsewhere before buys nothing here", async (t) => {
    const elsewhere = await testApp(t, { chain, env: { RELAYER_PRIVATE_KEYS: keyOf(chain) } });
    const body = await make();
    t.match(await post(elsewhere.app, "settle", body), { success: true });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "invalid_exact_evm_nonce_already_used",
    });
  });
});

const keyOf = (chain: TestApp["chain"]): string => {
  const [account] = chain.accounts;
  if (!account) throw new Error("no account");
  return account.privateKey;
};

/** Undefined: the request has no key. */
type Key = string | undefined;
const FIRST_KEYS: readonly Key[] = ["key A", undefined];
const KEYS: readonly Key[] = ["key A", "key B", undefined];
const KINDS = ["EIP-3009", "Permit2", "an agent's payment"] as const;
/** The delay between the first and the second request, when they race. */
const GAPS_MS = isFullTier ? [0, 8, 15] : [0, 15];

interface Case {
  kind: (typeof KINDS)[number];
  keys: readonly [Key, Key];
  payTo: Address;
  body: Body;
}

/**
 * Models who gets success: it depends on the key of the first request, and on whether success was returned before.
 */
class Model {
  readonly #first: Key;
  #wasGiven: boolean;
  constructor(first: Key, wasGiven = false) {
    this.#first = first;
    this.#wasGiven = wasGiven;
  }

  /** Whether a request with this key gets success now. */
  answer(key: Key): boolean {
    const succeeds = key === this.#first && (key !== undefined || !this.#wasGiven);
    this.#wasGiven ||= succeeds;
    return succeeds;
  }
}

t.test("two callers of one payment", { timeout: 300_000 }, async (t) => {
  const env = { GAS_BUDGET_5042002: AMPLE_GAS, SETTLE_WAIT_MS: "25000" };
  const one = await testApp(t, { env });
  await acceptAlone(one);
  const { chain, database } = one;
  // The second caller uses another process.
  const { url } = await startReplica(t, one, env);
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 10_000_000n);
  await approvePermit2(chain, [payer]);

  /** One payment for each pair of keys. */
  const makePairs = (kind: Case["kind"]): Promise<Case[]> =>
    Promise.all(
      FIRST_KEYS.flatMap((first) =>
        KEYS.map(async (second) => {
          const payTo = privateKeyToAccount(generatePrivateKey()).address;
          const body = await (kind === "Permit2" ? permit2Payment : signedPayment)({
            chain,
            payer,
            payTo,
          });
          if (kind === "an agent's payment")
            await acceptOwnPayment(one, body, "x402", newId("pay"));
          return { kind, keys: [first, second] as const, payTo, body };
        }),
      ),
    );
  const makeAll = async (): Promise<Case[]> => (await Promise.all(KINDS.map(makePairs))).flat();
  type Answer = Awaited<ReturnType<typeof post>>;
  const headersOf = (key: Key): Record<string, string> =>
    key === undefined ? {} : { "idempotency-key": key };
  type Settle = (made: Case, key: Key) => Promise<Answer>;
  const settleOnFirst: Settle = ({ body }, key) => post(one.app, "settle", body, headersOf(key));
  const settleOnSecond: Settle = async ({ body }, key) => {
    const headers = { "content-type": "application/json", ...headersOf(key) };
    return (await postTo(`${url}/api/x402/settle`, headers, body)).body;
  };
  const succeeded = ({ success }: Answer): boolean => success === true;
  const nameOf = ({ kind, keys }: Case): string =>
    `${kind}, ${keys.map((key) => key ?? "no key").join(" then ")}`;

  /** Each response is success or names the settlement as a duplicate; then every caller repeats its request. */
  async function expectAsModelled(
    t: Pick<Test, "same" | "equal">,
    made: Case,
    { model, answers }: { model: Model; answers: Answer[] },
  ): Promise<void> {
    const later = await Promise.all(
      KEYS.map((key, index) => (index % 2 === 0 ? settleOnSecond : settleOnFirst)(made, key)),
    );
    t.same(
      later.map(succeeded),
      KEYS.map((key) => model.answer(key)),
      `${nameOf(made)}, repeated`,
    );
    const all = [...answers, ...later];
    const hashes = new Set(all.map(({ transaction }) => transaction));
    t.equal(hashes.size, 1, `${nameOf(made)}: one transaction`);
    t.same(
      new Set(all.filter((answer) => !succeeded(answer)).map(({ errorReason }) => errorReason)),
      new Set(all.every(succeeded) ? [] : ["duplicate_settlement"]),
      nameOf(made),
    );
    const paid = await chain.usdcOf(made.payTo);
    t.equal(paid, 1_000n, `${nameOf(made)}: paid once`);
  }

  /** Either of two racing requests may be first; the rest is as if it had come alone. */
  async function expectOneFirst(
    t: Pick<Test, "same" | "equal">,
    made: Case,
    answers: [Answer, Answer],
  ): Promise<void> {
    const [one, other] = made.keys;
    const isSameKey = one !== undefined && one === other;
    t.equal(answers.filter(succeeded).length, isSameKey ? 2 : 1, nameOf(made));
    const first = succeeded(answers[0]) ? one : other;
    await expectAsModelled(t, made, { model: new Model(first, true), answers });
  }

  for (const kind of KINDS)
    for (const gapMs of GAPS_MS)
      await t.test(`${kind}: the second comes after ${gapMs} ms`, async (t) => {
        const race = async (made: Case, index: number): Promise<[Answer, Answer]> => {
          const [here, there] =
            index % 2 === 0 ? [settleOnFirst, settleOnSecond] : [settleOnSecond, settleOnFirst];
          const [first, second] = made.keys;
          const later = sleep(gapMs).then(() => there(made, second));
          return Promise.all([here(made, first), later]);
        };
        const pairs = await makePairs(kind);
        const answers = await Promise.all(pairs.map(race));
        await Promise.all(
          pairs.map((made, index) => expectOneFirst(t, made, answers[index] as [Answer, Answer])),
        );
      });

  await t.test("all in parallel in one process, which accepts them in groups", async (t) => {
    const cases = await makeAll();
    const answers = await Promise.all(
      cases.map(async (made) =>
        Promise.all([settleOnFirst(made, made.keys[0]), settleOnFirst(made, made.keys[1])]),
      ),
    );
    await Promise.all(
      cases.map((made, index) => expectOneFirst(t, made, answers[index] as [Answer, Answer])),
    );
  });

  const statuses = async (cases: Case[]): Promise<string[]> => {
    const { rows } = await database.pool.query<{ status: string }>(
      "SELECT status FROM settlements WHERE to_address = ANY($1) AND relay",
      [cases.map(({ payTo }) => payTo.toLowerCase())],
    );
    return rows.map(({ status }) => status);
  };

  /** The second request comes while the first one waits with its payment in this status. */
  async function whileWaiting(
    t: Test,
    status: string,
    goOn: () => Promise<unknown>,
  ): Promise<void> {
    const cases = await makeAll();
    const firsts = cases.map((made) => settleOnFirst(made, made.keys[0]));
    await until(async () => {
      const now = await statuses(cases);
      return now.length === cases.length && now.every((each) => each === status);
    }, 60_000);
    const seconds = cases.map((made) => settleOnSecond(made, made.keys[1]));
    await goOn();
    const answers = await Promise.all(
      cases.map(
        async (_, index) => [await firsts[index], await seconds[index]] as [Answer, Answer],
      ),
    );
    await Promise.all(
      cases.map(async (made, index) => {
        const pair = answers[index] as [Answer, Answer];
        const [first, second] = made.keys;
        // Without any key they are identical: success may go to the second if the first is slow.
        if (first !== undefined || second !== undefined)
          t.same(pair.map(succeeded), [true, first === second], nameOf(made));
        await expectOneFirst(t, made, pair);
      }),
    );
  }

  await t.test("the first is accepted", async (t) => {
    const holdLanes = "UPDATE relayer_lanes SET lease_until = $1, lease_owner = 'the test'";
    await database.pool.query(holdLanes, ["infinity"]);
    await whileWaiting(t, "queued", () => database.pool.query(holdLanes, ["-infinity"]));
  });

  await t.test("the first is in a transaction", async (t) => {
    await chain.testClient.setAutomine(false);
    await whileWaiting(t, "submitted", async () => {
      await chain.testClient.setAutomine(true);
      await chain.testClient.mine({ blocks: 1 });
    });
  });

  for (const [what, wasClaimed] of [
    ["settled, and its caller is gone", false],
    ["settled, and its process died between claiming success and responding", true],
  ] as const)
    await t.test(`the first is ${what}`, async (t) => {
      const cases = await makeAll();
      await Promise.all(
        cases.map(({ body, keys: [idempotencyKey] }) =>
          one.app.facilitator.settle(body, { idempotencyKey, isGone: () => true }),
        ),
      );
      if (wasClaimed)
        await database.pool.query(
          "UPDATE settlements SET success_told_at = now() WHERE to_address = ANY($1)",
          [cases.map(({ payTo }) => payTo.toLowerCase())],
        );
      await Promise.all(
        cases.map(async (made) => {
          const [first, second] = made.keys;
          const model = new Model(first, wasClaimed);
          const answer = await settleOnSecond(made, second);
          t.equal(succeeded(answer), model.answer(second), nameOf(made));
          await expectAsModelled(t, made, { model, answers: [answer] });
        }),
      );
    });

  await t.test("the first has its success", async (t) => {
    const cases = await makeAll();
    await Promise.all(
      cases.map(async (made) => {
        const [first, second] = made.keys;
        const model = new Model(first);
        const answers = [await settleOnFirst(made, first), await settleOnSecond(made, second)];
        t.same(
          answers.map(succeeded),
          made.keys.map((key) => model.answer(key)),
          nameOf(made),
        );
        await expectAsModelled(t, made, { model, answers });
      }),
    );
  });
});
