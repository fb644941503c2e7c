// Goal: a settlement is made once, and its success is returned to the right caller, however often and in whatever order it is requested.
import { Registry } from "prom-client";
import t from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { ApiError } from "../../server/errors.ts";
import type { Sql } from "../../server/infra/db/pool.ts";
import { callerOf, Settler } from "../../server/plugins/facilitator/settle.ts";
import { Outcomes } from "../../server/plugins/facilitator/stats.ts";
import { settleStore, type SettleStore } from "../../server/plugins/facilitator/store.ts";
import { PaymentChecker } from "../../server/plugins/facilitator/verify.ts";
import type {
  Settlement,
  SettlementOutcome,
  SettlementRow,
} from "../../server/plugins/settlement/types.ts";
import { transferOf } from "../helpers/eip3009.ts";
import { ARC, PAYEE } from "./payment-samples.ts";

type SettlerArgs = ConstructorParameters<typeof Settler>[0];
type SettleOptions = Parameters<Settler["settle"]>[1];

const OTHER = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const HASH: Hex = `0x${"ab".repeat(32)}`;
const payer = privateKeyToAccount(generatePrivateKey());
const NOW = 1_800_000_000;

const transfer = {
  from: payer.address,
  to: PAYEE,
  value: "1000",
  validAfter: "0",
  validBefore: String(NOW + 600),
  nonce: `0x${"07".repeat(32)}`,
} as const;

async function sign(over: Partial<Record<keyof typeof transfer, string>> = {}) {
  const authorization = { ...transfer, ...over };
  const signature = await payer.signTypedData({
    domain: {
      name: ARC.usdc.name,
      version: ARC.usdc.version,
      chainId: ARC.chainId,
      verifyingContract: ARC.usdc.address,
    },
    ...transferOf(authorization as Parameters<typeof transferOf>[0]),
  });
  const requirements = {
    scheme: "exact",
    network: ARC.id,
    amount: authorization.value,
    asset: ARC.usdc.address,
    payTo: authorization.to,
    maxTimeoutSeconds: 60,
    extra: { name: ARC.usdc.name, version: ARC.usdc.version },
  };
  return {
    signature,
    body: {
      x402Version: 2,
      paymentPayload: {
        x402Version: 2,
        accepted: requirements,
        payload: { signature, authorization },
      },
      paymentRequirements: requirements,
    },
  };
}
const { body, signature } = await sign();

const rowOf = (over: Partial<SettlementRow> = {}): SettlementRow => ({
  id: "pay_known",
  kind: "facilitated",
  agentId: null,
  authorization: {
    chainId: ARC.chainId,
    asset: ARC.usdc.address.toLowerCase() as Hex,
    from: payer.address.toLowerCase() as Hex,
    to: PAYEE.toLowerCase() as Hex,
    value: 1000n,
    validAfter: 0n,
    validBefore: BigInt(NOW + 600),
    nonce: transfer.nonce,
    signature,
  },
  relay: true,
  status: "settled",
  errorReason: null,
  errorMessage: null,
  txHash: HASH,
  blockNumber: 1n,
  byOther: false,
  callerKeyHash: null,
  bodyHash: callerOf(body, {}).bodyHash,
  successReturnedAt: null,
  createdAt: new Date(0),
  isFinal: true,
  mayTryAgain: false,
  traceparent: null,
  settledAt: new Date(0),
  ...over,
});

interface Scene {
  /** The row that the first lookup finds. */
  known?: SettlementRow;
  /** The row that another request made while this payment was checked. */
  raced?: SettlementRow;
  /** The agent's own row that this request attaches. */
  attaches?: SettlementRow;
  /** A row of another request that was also settled meanwhile: the chain refuses the payment a second time. */
  racedToTheEnd?: SettlementRow;
  outcome?: SettlementOutcome;
  isReturned?: boolean;
  wouldMove?: boolean;
  /** The check succeeds only after the payer's approval was submitted. */
  needsApproval?: true;
  over?: Partial<SettlerArgs>;
  store?: Partial<SettleStore>;
}

/** A settler whose store is a row in memory and whose chain is a boolean. */
function settlerWith(given: Scene = {}) {
  const log: string[] = [];
  let isReturned = given.isReturned ?? false;
  let isChecked = false;
  const settled: SettlementOutcome = {
    status: "settled",
    id: "pay_1",
    txHash: HASH,
    blockNumber: 1n,
    settledAt: new Date(0),
    byOther: false,
    amountAtomic: 1n,
  };
  const settlement: Partial<Settlement> = {
    assertAvailable: async () => undefined,
    wait: async (_id, timeoutMs) => {
      log.push(`wait ${timeoutMs}`);
      return given.outcome ?? settled;
    },
  };
  const checker = new PaymentChecker({
    relayers: [],
    networks: [ARC],
    minPaymentAtomic: 1n,
    nowSeconds: () => BigInt(NOW),
    factories: [],
    reads: new Map([
      [
        ARC.chainId,
        {
          simulate: async () => {
            isChecked = true;
            return given.wouldMove ?? true;
          },
          simulateAlone: async () => ({ goesThrough: false, revert: undefined }),
          diagnose: async () => ({ used: true, balanceAtomic: 0n }),
          simulateAfter: async () => ({ fails: true }),
          hasCode: async () => false,
          acceptsSignature: async () => false,
        },
      ],
    ]),
  });
  const check = checker.checkPayment.bind(checker);
  let isApproved = given.needsApproval !== true;
  checker.checkPayment = async (payment) => {
    const checked = await check(payment);
    return checked.isValid && !isApproved ? { ...checked, payerApproval: {} as never } : checked;
  };
  const made = new Settler({
    checker,
    ownSchemes: [],
    charging: {},
    settlement: settlement as Settlement,
    store: {
      find: async () => given.known ?? (isChecked ? given.racedToTheEnd : undefined),
      accept: async (request) => {
        log.push(`accept ${request.kind}`);
        const known = given.raced ?? given.attaches;
        const row = known ?? rowOf({ ...request, status: "queued", settledAt: null } as never);
        const attached = given.attaches !== undefined;
        return { created: known === undefined, attached, settlement: row };
      },
      claimSuccess: async () => {
        log.push("claim");
        const isFresh = !isReturned;
        isReturned = true;
        return isFresh;
      },
      waitUntilReturned: async (_row, untilMs) => untilMs > Date.now() && isReturned,
      ...given.store,
    },
    countFor: () => void log.push("admit"),
    payerApprovals: {
      submit: async (payment) => {
        log.push("submit approval");
        isApproved = true;
        return checker.checkPayment(payment);
      },
    },
    mayHaveTwin: () => false,
    waitMs: 5_000,
    outcomes: new Outcomes(new Registry()),
    log: { warn: () => void log.push("fault"), error: () => void log.push("fault") },
    ...given.over,
  });
  const settle = (options: SettleOptions = {}, sent: unknown = body) => made.settle(sent, options);
  return { settle, log };
}

const keyed = (idempotencyKey: string) => callerOf(body, { idempotencyKey }).keyHash;
/** A recent time: a repeat without a key would have to wait for it, which no test here does. */
const justSettled = { settledAt: new Date(Date.now() + 60_000) };
const success = { success: true, transaction: HASH };
const duplicate = { success: false, errorReason: "duplicate_settlement", transaction: HASH };

t.test("the first request makes the settlement and receives its success once", async (t) => {
  const { settle, log } = settlerWith();
  t.match(await settle(), { ...success, network: ARC.id, payer: payer.address, amount: "1000" });
  t.same(log, ["admit", "accept facilitated", "wait 5000", "claim"]);
});

t.test("a payer's approval is submitted before its payment is accepted", async (t) => {
  const { settle, log } = settlerWith({ needsApproval: true });
  t.match(await settle(), success);
  t.same(log, ["admit", "submit approval", "accept facilitated", "wait 5000", "claim"]);
});

t.test("an invalid payment is refused before anything is accepted", async (t) => {
  const refused = settlerWith({ wouldMove: false });
  t.match(await refused.settle(), {
    success: false,
    errorReason: "invalid_exact_evm_nonce_already_used",
    transaction: "",
  });
  t.match(await refused.settle({}, { nonsense: true }), {
    success: false,
    errorReason: "invalid_payload",
  });
  t.same(refused.log, []);
});

t.test("too many requests of one payer: nothing is accepted", async (t) => {
  const limited = settlerWith({
    over: {
      countFor: () => {
        throw new ApiError("rate_limited");
      },
    },
  });
  await t.rejects(limited.settle(), { code: "rate_limited" });
  t.same(limited.log, []);
});

t.test("a repeat by a caller without a key receives an unclaimed success once", async (t) => {
  const unreturned = settlerWith({ known: rowOf() });
  t.match(await unreturned.settle(), success, "the success was not returned yet");
  t.match(await unreturned.settle(), duplicate, "returned once, not twice");
  t.notOk(
    unreturned.log.some((step) => step.startsWith("accept")),
    "never made a second time",
  );
  t.match(await settlerWith({ known: rowOf(), isReturned: true }).settle(), duplicate);
});

t.test("the same caller receives its success as often as it requests it", async (t) => {
  const known = rowOf({ callerKeyHash: keyed("mine") });
  const { settle } = settlerWith({ known, isReturned: true });
  t.match(await settle({ idempotencyKey: "mine" }), success);
  t.match(await settle({ idempotencyKey: "mine" }), success);
  t.match(await settle({ idempotencyKey: "another" }), duplicate);
  t.match(await settle(), duplicate);
  t.match(
    await settle({ idempotencyKey: "mine", credential: "somebody" }),
    duplicate,
    "the same key of another caller is a different key",
  );
});

t.test("a first caller with a key can repeat: no other receives its success", async (t) => {
  const { settle, log } = settlerWith({ known: rowOf({ callerKeyHash: keyed("mine") }) });
  t.match(await settle(), duplicate);
  t.notOk(log.includes("claim"));
});

t.test("a key is another caller's where the first had none", async (t) => {
  const { settle, log } = settlerWith({ known: rowOf() });
  t.match(await settle({ idempotencyKey: "any" }), duplicate);
  t.notOk(log.includes("claim"), "its success is still unclaimed");
  const elsewhere = structuredClone(body);
  Object.assign(elsewhere.paymentPayload, { resource: { url: "http://localhost/other" } });
  t.match(await settle({}, elsewhere), success, "no part of a body proves who the caller is");
  t.match(await settle(), duplicate);
});

t.test("the same key with another body is another caller", async (t) => {
  const bodyHash = new Uint8Array(32);
  const { settle } = settlerWith({ known: rowOf({ callerKeyHash: keyed("mine"), bodyHash }) });
  t.match(await settle({ idempotencyKey: "mine" }), duplicate);
});

t.test("another caller waits until the first has received the success", async (t) => {
  const known = rowOf({ settledAt: new Date(Date.now() + 60_000) });
  const waits: number[] = [];
  const { settle, log } = settlerWith({
    known,
    store: {
      waitUntilReturned: async (row, untilMs) => {
        t.equal(row, known);
        waits.push(untilMs);
        return true;
      },
    },
  });
  t.match(await settle(), duplicate);
  t.same(waits, [Number(known.settledAt) + 1_000]);
  t.notOk(log.includes("claim"), "nothing is claimed out of turn");
});

t.test("the store looks until another request has returned the success", async (t) => {
  const found = [false, false, true, true];
  let looks = 0;
  const query = async () => ({ rows: [{ returned: found[looks++] }] });
  const pauses: number[] = [];
  const claims = settleStore(
    { query } as unknown as Sql,
    { acceptAll: async () => [], findByAuthorization: async () => undefined },
    async (ms) => pauses.push(ms),
  );
  t.equal(await claims.waitUntilReturned(rowOf(), 0), false);
  t.equal(looks, 0, "the first request does not look");
  t.equal(await claims.waitUntilReturned(rowOf(), Date.now() + 60_000), true);
  t.equal(looks, 3);
  t.same(pauses, [50, 50]);
});

t.test("success is not returned on a closed connection", async (t) => {
  const { settle, log } = settlerWith();
  t.match(await settle({ isGone: () => true }), duplicate);
  t.notOk(log.includes("claim"), "the next request may still receive it");
});

t.test("a nonce alone proves nothing", async (t) => {
  const known = rowOf();
  const more = await sign({ value: "2000" });
  t.match(await settlerWith({ known }).settle({}, more.body), {
    success: false,
    errorReason: "invalid_exact_evm_nonce_already_used",
  });
  const elsewhere = await sign({ to: OTHER });
  t.match(await settlerWith({ known }).settle({}, elsewhere.body), {
    errorReason: "invalid_exact_evm_nonce_already_used",
  });
  const forged = structuredClone(body);
  forged.paymentPayload.payload.signature = `0x${"11".repeat(65)}`;
  const { settle, log } = settlerWith({ known });
  t.match(await settle({}, forged), { errorReason: "invalid_exact_evm_signature" });
  t.same(log, [], "nothing is waited for or claimed");
});

t.test("a signature that is public on chain receives no success", async (t) => {
  for (const known of [
    rowOf({ kind: "spend", agentId: "agt_1" }),
    rowOf({ kind: "withdrawal", agentId: "agt_1" }),
    rowOf({ kind: "x402", agentId: "agt_1", relay: false }),
  ]) {
    const { settle, log } = settlerWith({ known });
    t.match(await settle(), duplicate, known.kind);
    t.same(log, [], "not even waited for");
  }
});

t.test("an agent's own payment, submitted by a seller, is relayed for the seller", async (t) => {
  for (const status of ["queued", "submitted"] as const) {
    const waiting = { kind: "x402", agentId: "agt_1", status, settledAt: null } as const;
    const known = rowOf({ ...waiting, relay: false });
    const attaches = rowOf({ ...waiting, relay: true, callerKeyHash: keyed("mine") });
    const { settle, log } = settlerWith({ known, attaches });
    t.match(await settle({ idempotencyKey: "mine" }), success);
    t.same(log, ["admit", "accept facilitated", "wait 5000"]);
    for (const idempotencyKey of ["another", undefined]) {
      const other = settlerWith({ known, raced: attaches });
      t.match(await other.settle({ idempotencyKey }), duplicate, "attached by another request");
    }
  }
});

t.test("a request without a key that attaches an agent's payment is the first", async (t) => {
  const attaches = rowOf({ kind: "x402", agentId: "agt_1", ...justSettled });
  const { settle } = settlerWith({
    attaches,
    store: {
      waitUntilReturned: async (_row, untilMs) => {
        t.equal(untilMs, 0, "it does not stand back");
        return false;
      },
    },
  });
  t.match(await settle(), success);
});

t.test("two first requests at once: the second one is judged by the stored row", async (t) => {
  for (const [firstKeyHash, mine] of [
    [null, "mine"],
    [keyed("theirs"), undefined],
    [keyed("theirs"), "mine"],
  ] as const) {
    const { settle, log } = settlerWith({ raced: rowOf({ callerKeyHash: firstKeyHash }) });
    t.match(await settle({ idempotencyKey: mine }), duplicate, "the same body proves nothing");
    t.notOk(log.includes("claim"));
  }
  const same = settlerWith({ raced: rowOf({ callerKeyHash: keyed("mine") }), isReturned: true });
  t.match(await same.settle({ idempotencyKey: "mine" }), success);
  const unreturned = settlerWith({
    raced: rowOf(justSettled),
    store: {
      waitUntilReturned: (_row, untilMs) =>
        untilMs > Date.now() ? Promise.reject(new Error("stood back")) : Promise.resolve(false),
    },
  });
  t.match(await unreturned.settle(), { errorReason: "settlement_pending" });
  t.notOk(unreturned.log.includes("claim"), "not before the first had time to");
  const other = rowOf();
  other.authorization = { ...other.authorization, value: 7n };
  t.match(await settlerWith({ raced: other }).settle(), {
    errorReason: "invalid_exact_evm_nonce_already_used",
  });
});

t.test("a payment settled by another request during its check is a duplicate", async (t) => {
  const racedToTheEnd = rowOf({ callerKeyHash: keyed("theirs") });
  const given = { wouldMove: false, racedToTheEnd };
  t.match(await settlerWith(given).settle(), duplicate);
  t.match(
    await settlerWith(given).settle({ idempotencyKey: "theirs" }),
    success,
    "its own caller gets the answer",
  );
});

t.test("outcomes without success", async (t) => {
  const pending = settlerWith({ outcome: { status: "pending", id: "pay_1", txHash: HASH } });
  t.match(await pending.settle(), {
    success: false,
    errorReason: "settlement_pending",
    transaction: HASH,
  });
  t.notOk(pending.log.includes("claim"));
  const ends: [SettlementOutcome, string][] = [
    [
      { status: "failed", id: "pay_1", reason: "authorization_canceled", message: "Canceled." },
      "invalid_exact_evm_nonce_already_used",
    ],
    [
      { status: "expired", id: "pay_1", reason: "anything", message: "Too late." },
      "invalid_exact_evm_payload_authorization_valid_before",
    ],
    [
      { status: "failed", id: "pay_1", reason: "invalid_transaction_state", message: "No." },
      "invalid_transaction_state",
    ],
  ];
  for (const [outcome, errorReason] of ends)
    t.match(await settlerWith({ outcome }).settle(), { success: false, errorReason });
});

t.test("a final row is returned without waiting", async (t) => {
  const failed = settlerWith({
    known: rowOf({
      status: "failed",
      txHash: null,
      settledAt: null,
      errorReason: "invalid_exact_evm_transaction_failed",
      errorMessage: "It reverted.",
    }),
  });
  t.match(await failed.settle(), {
    errorReason: "invalid_exact_evm_transaction_failed",
    errorMessage: "It reverted.",
  });
  const done = settlerWith({ known: rowOf() });
  await done.settle();
  for (const { log } of [failed, done]) t.notOk(log.some((step) => step.startsWith("wait")));
});

t.test("a fault after acceptance is reported as pending, not as a refusal", async (t) => {
  const { settle, log } = settlerWith({
    store: { claimSuccess: () => Promise.reject(new Error("the database is gone")) },
  });
  t.match(await settle(), { success: false, errorReason: "settlement_pending" });
  t.ok(log.includes("fault"));
});
