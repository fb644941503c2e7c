// Goal: wherever a facilitator fails, a payment is charged once at most, money that moved is never called unpaid, and a
// sale is delivered exactly when it is paid.
import { FacilitatorResponseError, FacilitatorTimeoutError } from "@x402/core/server";
import type { FacilitatorClient } from "@x402/core/server";
import type { PaymentPayload, PaymentRequirements, SettleResponse } from "@x402/core/types";
import t, { type Test } from "tap";
import { candidatesFor } from "../../packages/paywall/src/candidates.ts";
import { isNotConnected } from "../../packages/paywall/src/facilitator-call.ts";
import { FailoverFacilitatorClient } from "../../packages/paywall/src/failover.ts";
import { OneProcessStore } from "../../packages/paywall/src/store.ts";

const NETWORK = "eip155:5042002";
const ASSET = "0x3600000000000000000000000000000000000000";
const FROM = `0x${"a1".repeat(20)}`;
const PAY_TO = `0x${"b2".repeat(20)}`;
const USED_EVENT = "0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5";
const TRANSFER_EVENT = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";
const USED = "invalid_exact_evm_nonce_already_used";

type Scheme = "exact" | "permit2" | "upto";

const terms = (scheme: Scheme): PaymentRequirements => ({
  scheme: scheme === "upto" ? "upto" : "exact",
  network: NETWORK,
  asset: ASSET,
  amount: "1000",
  payTo: PAY_TO,
  maxTimeoutSeconds: 120,
  extra: { name: "USDC", version: "2" },
});

let payments = 0;
function payment(scheme: Scheme, validForSeconds = 120): PaymentPayload {
  payments += 1;
  const until = String(Math.floor(Date.now() / 1_000) + validForSeconds);
  const nonce = `0x${payments.toString(16).padStart(64, "0")}`;
  const authorization = {
    from: FROM,
    to: PAY_TO,
    value: "1000",
    validAfter: "0",
    validBefore: until,
    nonce,
  };
  const permit2Authorization = { from: FROM, nonce: String(payments), deadline: until };
  const payload = scheme === "exact" ? { authorization } : { permit2Authorization };
  return { x402Version: 2, accepted: terms(scheme), payload };
}

const nonceOf = ({ payload }: PaymentPayload): string => {
  const { authorization, permit2Authorization } = payload as Record<string, { nonce: string }>;
  return (authorization ?? permit2Authorization)?.nonce ?? "";
};

/** A chain that accepts each nonce once. */
class World {
  readonly used = new Map<string, string>();
  readonly later: (() => void)[] = [];
  headSeconds = Math.floor(Date.now() / 1_000);
  transfers = 0;

  move(payload: PaymentPayload): string | undefined {
    const nonce = nonceOf(payload);
    if (this.used.has(nonce)) return undefined;
    this.transfers += 1;
    const hash = `0x${this.transfers.toString(16).padStart(64, "f")}`;
    this.used.set(nonce, hash);
    return hash;
  }
  passTime(): void {
    for (const act of this.later.splice(0)) act();
  }
}

const caused = (code: string, syscall: string): Error =>
  new TypeError("fetch failed", { cause: Object.assign(new Error(code), { code, syscall }) });

/** How a call fails, by what the seller sees. */
const ERRORS = {
  refused: () => caused("ECONNREFUSED", "connect"),
  lost: () => caused("ECONNRESET", "read"),
  slow: () => new FacilitatorTimeoutError("settle", 30_000),
  error: (operation: string) => new Error(`Facilitator ${operation} failed (503): oops`),
  malformed: () => new FacilitatorResponseError("Facilitator returned invalid JSON"),
  unwelcome: (operation: string) => new Error(`Facilitator ${operation} failed (401): key`),
};
/** When the work was done that was not answered. */
type When = "never" | "before" | "later";
type Fault = { error: keyof typeof ERRORS; work: When };

interface Behaviour {
  verify?: Fault | undefined;
  settle?: Fault | undefined;
  /** After its first failure: works again, or refuses every connection. */
  after?: "works" | "isDead";
  /** The reason for a payment that was used. */
  usedReason?: string;
}

interface Simulated extends FacilitatorClient {
  calls: string[];
  behaviour: Behaviour;
}

function facilitator(world: World, behaviour: Behaviour = {}): Simulated {
  let isDead = false;
  const simulated: Simulated = { calls: [], behaviour, verify, settle, getSupported };
  function fail(operation: "verify" | "settle", work: () => void): void {
    simulated.calls.push(operation);
    if (isDead) throw ERRORS.refused();
    const fault = simulated.behaviour[operation];
    if (!fault) return;
    simulated.behaviour = { ...simulated.behaviour, [operation]: undefined };
    if (simulated.behaviour.after === "isDead") isDead = true;
    if (fault.work === "before") work();
    if (fault.work === "later") world.later.push(work);
    throw ERRORS[fault.error](operation);
  }
  async function verify(payload: PaymentPayload) {
    fail("verify", () => undefined);
    const isUsed = world.used.has(nonceOf(payload));
    return { isValid: !isUsed, ...(isUsed && { invalidReason: USED }), payer: FROM };
  }
  async function settle(payload: PaymentPayload): Promise<SettleResponse> {
    fail("settle", () => void world.move(payload));
    const transaction = world.move(payload);
    if (transaction !== undefined) return { success: true, transaction, network: NETWORK };
    const errorReason = simulated.behaviour.usedReason ?? USED;
    return { success: false, errorReason, transaction: "", network: NETWORK };
  }
  async function getSupported() {
    if (isDead) throw ERRORS.refused();
    const kinds = ["exact", "upto"].map((scheme) => ({ x402Version: 2, scheme, network: NETWORK }));
    return { kinds, extensions: [], signers: {} } as never;
  }
  return simulated;
}

const RPC_URL = "http://node.test";
const word = (text: string): string => `0x${text.slice(2).padStart(64, "0")}`;
const hex = (value: number): string => `0x${value.toString(16)}`;

/** The seller's node, which shows this world. */
function showChain(t: Test, world: () => World): void {
  const answer = ({ used, headSeconds }: World, method: string, params: unknown[]): unknown => {
    const [first] = params as [Record<string, unknown>];
    const block = { number: "0x10", hash: word("0x10"), timestamp: hex(headSeconds) };
    if (method === "eth_chainId") return hex(5_042_002);
    if (method.startsWith("eth_getBlock")) return block;
    if (method === "eth_call")
      return word(used.has(`0x${String(first["data"]).slice(-64)}`) ? "0x1" : "0x0");
    if (method === "eth_getLogs")
      return [{ transactionHash: used.get((first["topics"] as string[])[2] ?? "") }];
    const [nonce] = [...used].find(([, hash]) => hash === params[0]) ?? [""];
    const logs = [
      { address: ASSET, topics: [USED_EVENT, word(FROM), nonce], data: "0x" },
      { address: ASSET, topics: [TRANSFER_EVENT, word(FROM), word(PAY_TO)], data: hex(1_000) },
    ];
    return { status: "0x1", blockHash: block.hash, logs };
  };
  t.intercept(globalThis, "fetch", {
    value: async (_url: string, { body }: { body: string }) => {
      const { method, params } = JSON.parse(body) as { method: string; params: unknown[] };
      return Response.json({ jsonrpc: "2.0", id: 1, result: answer(world(), method, params) });
    },
  });
}

type Told = "paid" | "unpaid" | "unknown" | "used" | "unavailable";

/** What middleware does with a payment: verify, then settle. */
async function buy(
  client: FacilitatorClient,
  payload: PaymentPayload,
  required: PaymentRequirements,
): Promise<{ outcome: Told; transaction?: string }> {
  try {
    const { isValid } = await client.verify(payload, required);
    if (!isValid) return { outcome: "unpaid" };
    const { success, errorReason, transaction } = await client.settle(payload, required);
    if (success) return { outcome: "paid", transaction };
    if (errorReason === "settlement_pending") return { outcome: "unknown" };
    return { outcome: errorReason === "duplicate_settlement" ? "used" : "unpaid" };
  } catch (error) {
    if ((error as { statusCode?: number }).statusCode !== 503) throw error;
    return { outcome: "unavailable" };
  }
}

const FAULTS: Fault[] = [
  { error: "refused", work: "never" },
  { error: "unwelcome", work: "never" },
  ...(["lost", "slow", "error", "malformed"] as const).flatMap((error) =>
    (["never", "before", "later"] as const).map((work) => ({ error, work })),
  ),
];
const SECONDS: Behaviour[] = [
  {},
  { usedReason: "invalid_exact_evm_insufficient_balance" },
  { settle: { error: "refused", work: "never" } },
  { settle: { error: "slow", work: "before" } },
  { settle: { error: "lost", work: "later" } },
];

t.test("each fault of the first and of the second facilitator", async (t) => {
  let world = new World();
  showChain(t, () => world);
  let cases = 0;
  const sold = { paid: 0, open: 0 };
  for (const scheme of ["exact", "permit2", "upto"] as const)
    for (const operation of ["verify", "settle"] as const)
      for (const fault of FAULTS)
        for (const after of ["works", "isDead"] as const)
          for (const second of SECONDS)
            for (const hasNode of scheme === "exact" ? [true, false] : [false]) {
              world = new World();
              const client = new FailoverFacilitatorClient({
                facilitators: [
                  facilitator(world, { [operation]: fault, after }),
                  facilitator(world, second),
                ],
                rpcUrls: hasNode ? { [NETWORK]: RPC_URL } : {},
              });
              await client.getSupported();
              const proof = payment(scheme);
              const name = JSON.stringify({ scheme, operation, fault, after, second, hasNode });
              let delivered = 0;
              for (let turn = 0; turn < 4; turn += 1) {
                const { outcome, transaction } = await buy(client, proof, terms(scheme));
                const isMoved = world.used.has(nonceOf(proof));
                if (outcome === "paid") {
                  delivered += 1;
                  if (world.used.get(nonceOf(proof)) !== transaction)
                    t.fail(`said to be paid without its transaction: ${name}`);
                }
                if (outcome === "unavailable" && isMoved) t.fail(`called not taken: ${name}`);
                // Once delivered, the payment is used up, and a repeat is refused.
                if (outcome === "unpaid" && isMoved && delivered === 0)
                  t.fail(`called unpaid, turn ${turn}: ${name}`);
                world.passTime();
              }
              if (world.transfers > 1) t.fail(`charged ${world.transfers} times: ${name}`);
              if (delivered > 1) t.fail(`delivered ${delivered} times: ${name}`);
              if (delivered > world.transfers) t.fail(`delivered unpaid: ${name}`);
              const isProven = hasNode && scheme === "exact";
              if (isProven && delivered !== world.transfers) t.fail(`not delivered: ${name}`);
              if (delivered === 1) sold.paid += 1;
              else sold.open += 1;
              cases += 1;
            }
  t.comment(`${cases} cases: ${JSON.stringify(sold)}`);
  t.ok(sold.paid > sold.open, "most of them are sold all the same");
});

t.test("a payment that cannot be sent twice stays with one facilitator", async (t) => {
  const world = new World();
  const [first, second] = [
    facilitator(world, { settle: { error: "refused", work: "never" } }),
    facilitator(world),
  ];
  const kinds = [{ x402Version: 2, scheme: "batch-settlement", network: NETWORK }];
  for (const one of [first, second])
    one.getSupported = async () => ({ kinds, extensions: [], signers: {} }) as never;
  const client = new FailoverFacilitatorClient({ facilitators: [first, second] });
  const required = { ...terms("exact"), scheme: "batch-settlement" };
  const voucher = { x402Version: 2, accepted: required, payload: { type: "deposit" } };
  await t.rejects(client.settle(voucher, required), /nothing was settled/);
  first.behaviour = { settle: { error: "lost", work: "never" } };
  await t.rejects(client.settle(voucher, required), /not known/);
  t.same(second.calls, []);
  // A verification moves nothing.
  first.behaviour = { verify: { error: "lost", work: "never" } };
  t.match(await client.verify(payment("exact"), required), { isValid: true });
  t.same(second.calls, ["verify"]);
});

t.test("a refusal is an answer: nobody else is asked", async (t) => {
  const world = new World();
  const [first, second] = [facilitator(world), facilitator(world)];
  const client = new FailoverFacilitatorClient({ facilitators: [first, second] });
  const proof = payment("exact");
  world.move(proof);
  t.match(await client.verify(proof, terms("exact")), { isValid: false, invalidReason: USED });
  t.match(await client.settle(proof, terms("exact")), { success: false, errorReason: USED });
  t.same(second.calls, []);
});

t.test("after a time-out nobody else gets the payment until the payer repeats it", async (t) => {
  const world = new World();
  const first = facilitator(world);
  const second = facilitator(world);
  const client = new FailoverFacilitatorClient({ facilitators: [first, second] });
  first.settle = async () => {
    first.calls.push("settle");
    throw ERRORS.slow();
  };
  const proof = payment("exact");
  const open = await client.settle(proof, terms("exact"));
  t.match(open, { success: false, errorReason: "settlement_pending", transaction: "" });
  t.match(open.errorMessage, /Do not pay again/);
  t.same([first.calls, second.calls], [["settle", "settle"], []]);
  t.match(await client.verify(proof, terms("exact")), { isValid: true });
  const forged = { ...proof, payload: { ...proof.payload, signature: "0x01" } };
  t.match(await client.settle(forged, terms("exact")), {
    success: false,
    errorReason: "duplicate_settlement",
  });
  t.same([first.calls.length, second.calls], [2, []], "nothing was sent for it");
  t.match(await client.settle(proof, terms("exact")), { success: true });
  t.same([first.calls.length, second.calls], [3, ["settle"]]);
  t.match(await client.settle({ ...proof }, { ...terms("exact"), amount: "2" }), {
    success: false,
  });
});

t.test("an authorization that expired unused is unpaid, and a new one may be sent", async (t) => {
  const world = new World();
  showChain(t, () => world);
  const client = new FailoverFacilitatorClient({
    facilitators: [
      facilitator(world, { settle: { error: "slow", work: "never" }, after: "isDead" }),
    ],
    rpcUrls: { [NETWORK]: RPC_URL },
  });
  const proof = payment("exact", 1);
  t.match(await client.settle(proof, terms("exact")), { errorReason: "settlement_pending" });
  world.headSeconds += 120;
  t.match(await client.settle(proof, terms("exact")), {
    success: false,
    errorReason: "invalid_exact_evm_payload_authorization_valid_before",
  });
});

t.test("one payment at two processes, settled by two facilitators, is served once", async (t) => {
  const store = new OneProcessStore();
  const world = new World();
  const proof = payment("exact");
  const transaction = world.move(proof) ?? "";
  // Both report it: the second found the transaction of the first.
  const both = [1, 2].map(() => {
    const one = facilitator(world);
    one.settle = async () => ({ success: true, transaction, network: NETWORK });
    return new FailoverFacilitatorClient({ facilitators: [one], store });
  });
  const answers = await Promise.all(both.map((one) => one.settle(proof, terms("exact"))));
  t.equal(answers.filter(({ success }) => success).length, 1);
  t.match(
    answers.find(({ success }) => !success),
    { errorReason: "duplicate_settlement", transaction },
  );
});

t.test("if the store fails, the sale is unknown, and delivered by the next request", async (t) => {
  const world = new World();
  const store = new OneProcessStore();
  const faults: string[] = [];
  showChain(t, () => world);
  let isDown = true;
  const client = new FailoverFacilitatorClient({
    facilitators: [facilitator(world)],
    rpcUrls: { [NETWORK]: RPC_URL },
    store: {
      useNonce: async (...entry) => {
        if (isDown) throw new Error("password=hunter2");
        return store.useNonce(...entry);
      },
    },
    onFault: (_error, what) => void faults.push(what),
  });
  const proof = payment("exact");
  const open = await client.settle(proof, terms("exact"));
  t.match(open, { success: false, errorReason: "settlement_pending" });
  t.notMatch(JSON.stringify(open), "hunter2");
  t.equal(faults.length, 1);
  isDown = false;
  t.match(await client.settle(proof, terms("exact")), { success: true });
  t.equal(world.transfers, 1);
});

t.test("a facilitator that fails is skipped, and tried again by one payment", async (t) => {
  const clock = t.capture(Date, "now", () => nowMs);
  let nowMs = 1_700_000_000_000;
  const world = new World();
  const first = facilitator(world, { verify: { error: "error", work: "never" } });
  const second = facilitator(world);
  const faults: string[] = [];
  const client = new FailoverFacilitatorClient({
    facilitators: [first, second],
    skipMs: 1_000,
    onFault: (_error, what) => void faults.push(what),
  });
  const verify = () => client.verify(payment("exact"), terms("exact"));
  await verify();
  await verify();
  t.same([first.calls.length, second.calls.length], [1, 2], "skipped");
  const said = "facilitator 1 does not work, and is skipped for a while";
  t.same(faults, [said], "the seller's log names it once");
  t.match(client.health(), [
    { state: "skipped", failures: 1, lastError: "HTTP 503" },
    { state: "healthy", failures: 0 },
  ]);
  nowMs += 1_001;
  client.health();
  // What it supports is read in the background.
  await new Promise(setImmediate);
  t.match(client.health(), [{ state: "recovering" }, { state: "healthy" }]);
  let answer: (() => void) | undefined;
  first.verify = async () => {
    await new Promise<void>((resolve) => {
      answer = resolve;
    });
    return { isValid: true };
  };
  const trial = verify();
  await new Promise(setImmediate);
  await verify();
  t.equal(second.calls.length, 3, "only one payment tries it");
  answer?.();
  await trial;
  t.match(client.health(), [{ state: "healthy", failures: 0 }, { state: "healthy" }]);
  t.ok(clock().length > 0);
});

t.test(
  "offers are of the first that works, and payments go to those that can take them",
  async (t) => {
    const supporting = (facilitatorAddress: string, signers: string[] = []) => ({
      supported: {
        kinds: [
          { x402Version: 2, scheme: "upto", network: NETWORK, extra: { facilitatorAddress } },
          { x402Version: 2, scheme: "exact", network: NETWORK },
        ],
        extensions: [],
        signers: { "eip155:*": signers },
      } as never,
    });
    const [one, other, several] = [
      supporting("0xA"),
      supporting("0xB"),
      supporting("0xC", ["0xA"]),
    ];
    const upto = { ...terms("upto"), extra: { facilitatorAddress: "0xa" } };
    const signed = { ...payment("upto"), accepted: upto };
    const all = [other, one, several];
    t.same(candidatesFor(all, signed, upto), [one, several]);
    t.same(candidatesFor(all, payment("exact"), terms("exact")), all);
    t.same(candidatesFor(all, { ...signed, x402Version: 1 }, upto), []);

    const world = new World();
    const first = facilitator(world, { verify: { error: "lost", work: "never" } });
    const second = facilitator(world);
    second.getSupported = async () => supporting("0xB").supported;
    const client = new FailoverFacilitatorClient({ facilitators: [first, second] });
    t.notMatch(await client.getSupported(), supporting("0xB").supported);
    await client.verify(payment("exact"), terms("exact"));
    t.match(await client.getSupported(), supporting("0xB").supported, "offers follow");
  },
);

t.test("what counts as not sent", async (t) => {
  const plain = (fields: object, cause?: unknown) =>
    Object.assign(new Error("x", { cause }), fields);
  for (const error of [
    caused("ECONNREFUSED", "connect"),
    caused("EAI_AGAIN", "getaddrinfo"),
    plain({}, plain({ code: "UND_ERR_CONNECT_TIMEOUT" })),
    plain({}, plain({ code: "CERT_HAS_EXPIRED" })),
    plain({}, plain({ code: "DEPTH_ZERO_SELF_SIGNED_CERT" })),
    plain({ errors: [caused("ETIMEDOUT", "connect"), caused("ENETUNREACH", "connect")] }),
  ])
    t.ok(isNotConnected(error), error.cause as string);
  for (const error of [
    caused("ECONNRESET", "read"),
    caused("EPIPE", "write"),
    caused("ETIMEDOUT", "read"),
    plain({}, plain({ code: "UND_ERR_SOCKET" })),
    plain({}, plain({ code: "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED" })),
    plain({ errors: [caused("ECONNREFUSED", "connect"), caused("ECONNRESET", "read")] }),
    plain({ errors: [] }),
    new FacilitatorTimeoutError("settle", 1),
    "text",
  ])
    t.notOk(isNotConnected(error));
});

t.test("an address with a secret in it is refused at start", async (t) => {
  for (const url of ["https://user:pass@f.example", "https://f.example/?key=1", "f.example"])
    t.throws(() => new FailoverFacilitatorClient({ facilitators: [url] }));
  t.throws(() => new FailoverFacilitatorClient({ facilitators: [] }), /empty/);
});
