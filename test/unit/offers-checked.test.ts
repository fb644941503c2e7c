// Goal: of several payable offers the first that rules and balance allow is paid, a changed listing is refused with its reason, and each other offer says why it was not paid.
import t from "tap";
import type { Address, Hex } from "viem";
import { ApiError } from "../../server/errors.ts";
import type { Verdict } from "../../server/plugins/guardrails/types.ts";
import type { PayRequest } from "../../server/plugins/payments/reserve.ts";
import {
  checkOffers,
  choosePayable,
  chooseTerms,
  explained,
  offersForAnswer,
  payRequest,
  quotedReasons,
  refusalOf,
  withOffers,
  type ChosenTerms,
} from "../../server/plugins/x402-client/choose.ts";
import type { Job } from "../../server/plugins/x402-client/job.ts";
import type { Offer, OfferedTerms } from "../../server/plugins/x402-client/terms.ts";
import { ARC, BASE_SEPOLIA as BASE, PAYEE, PAYER as WALLET } from "./payment-samples.ts";

const SIGNER: Address = "0x1111111111111111111111111111111111111111";
const HASH: Hex = `0x${"5".repeat(64)}`;
const URL_OF_TARGET = "https://shop.example/word";

const terms = (over: Partial<OfferedTerms> = {}, network = ARC): OfferedTerms => ({
  protocol: "x402",
  scheme: "exact",
  network: network.id,
  amount: "1000",
  asset: network.usdc.address,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  extra: {},
  raw: { of: over.amount ?? "1000" },
  ...over,
});
const offerOf = (accepts: OfferedTerms[], over: Partial<Offer> = {}): Offer => ({
  x402Version: 2,
  accepts,
  resource: undefined,
  extensions: undefined,
  error: undefined,
  ...over,
});
const THROUGH: Partial<OfferedTerms> = {
  scheme: "batch-settlement",
  extra: {
    name: ARC.usdc.name,
    version: ARC.usdc.version,
    receiverAuthorizer: SIGNER,
    withdrawDelay: 900,
  },
};

interface World {
  listing?: object;
  usesChannels?: boolean;
  input?: object;
  /** By amount: what the guardrails say of it. */
  verdicts?: Record<string, Partial<Verdict> | Error>;
  downChains?: number[];
}

function jobIn({
  listing,
  usesChannels = false,
  input = {},
  verdicts = {},
  downChains = [],
}: World = {}) {
  const calls: string[] = [];
  const evaluated: PayRequest[] = [];
  const job = {
    caller: {
      id: "agt_1",
      walletAddress: WALLET,
      network: ARC.id,
      usesChannels,
      requestId: "req_1",
      idempotency: { key: "k" },
    },
    listing,
    target: { url: new URL(URL_OF_TARGET) },
    maxAmountAtomic: 9_000n,
    input,
    deps: {
      networks: [ARC, BASE],
      settleWaitMs: 0,
      channels: { wanted: (...args: unknown[]) => args },
      agentReserve: {
        assertAvailable: async (chainId: number) => {
          calls.push(`available ${chainId}`);
          if (downChains.includes(chainId)) throw new ApiError("chain_unavailable");
        },
        readBalance: async (chainId: number) => {
          calls.push(`balance ${chainId}`);
          return { atomic: 1n, blockNumber: 1n };
        },
        evaluate: async (request: PayRequest) => {
          calls.push(`evaluate ${request.amountAtomic}`);
          evaluated.push(request);
          const verdict = verdicts[String(request.amountAtomic)] ?? { allowed: true };
          if (verdict instanceof Error) throw verdict;
          return verdict as Verdict;
        },
      },
    },
  } as unknown as Job;
  return { job, calls, evaluated };
}

const pick = (world: World, accepts: OfferedTerms[], signer?: Address) =>
  choosePayable(jobIn(world).job, offerOf(accepts), signer);

t.test("terms that can be paid", async (t) => {
  t.match(pick({}, [terms()]), {
    choice: { chosen: { amountAtomic: 1_000n } },
    refusal: undefined,
  });
  t.match(pick({}, [terms({ payTo: WALLET }), terms({ amount: "5" })]), {
    choice: { chosen: { amountAtomic: 5n } },
  });
  t.match(
    pick({}, [terms({}, BASE), terms()]),
    { choice: { chosen: { network: { id: ARC.id } } } },
    "the agent's network",
  );
  const both = [terms(), terms(THROUGH)];
  t.match(pick({ usesChannels: true }, both, SIGNER), {
    choice: { chosen: { channel: { signer: SIGNER } } },
  });
  t.match(pick({}, both, SIGNER), { choice: { chosen: { channel: undefined } } });
  try {
    pick({}, [terms({ scheme: "odd" }), terms({ amount: "0" })]);
    t.fail("nothing can be paid");
  } catch (error) {
    t.match(error, {
      code: "unsupported_payment_requirements",
      extra: {
        offers: [
          { offer: 1, scheme: null, refused: { code: "unsupported_scheme" } },
          { offer: 2, refused: { code: "amount_invalid" } },
        ],
        thirdParty: {
          untrusted: true,
          reasons: [/^Offer 1: scheme "odd"/, /^Offer 2: amount "0"/],
        },
      },
    });
  }
});

const LISTING = {
  id: "lst_1",
  host: "shop.example",
  payTo: PAYEE.toLowerCase(),
  asset: ARC.usdc.address.toLowerCase(),
  network: ARC.id,
  priceCeilingAtomic: 1_000n,
};

t.test("terms that differ from the listing", async (t) => {
  const listing = LISTING;
  t.match(pick({ listing }, [terms()]), { choice: { ok: true }, refusal: undefined });
  t.match(
    pick({ listing }, [terms({ amount: "1001" }), terms()]),
    { choice: { chosen: { amountAtomic: 1_000n } }, refusal: undefined },
    "another offer is as listed",
  );
  const dearer = pick({ listing }, [
    terms({ scheme: "odd" }),
    terms({ amount: "3000" }),
    terms({ amount: "2000" }),
  ]);
  t.match(dearer, {
    choice: {
      chosen: { amountAtomic: 2_000n },
      ranked: [{ place: 3 }],
      offers: [
        { place: 1, refused: { code: "unsupported_scheme" } },
        { place: 2, refused: { code: "listing_mismatch" } },
        { place: 3, payable: { amountAtomic: 2_000n } },
      ],
    },
    refusal: {
      code: "listing_mismatch",
      detail: /^The current terms differ from the listing\. \S/,
    },
  });
  t.equal(dearer.choice?.ranked.length, 1);
  const none = pick({ listing }, [terms({ scheme: "odd" })]);
  t.same(none, {
    refusal: { code: "listing_mismatch", detail: "The current terms differ from the listing." },
  });
});

const payable = (accepts: OfferedTerms[], world: World = {}) => {
  const { job, calls, evaluated } = jobIn(world);
  const offer = offerOf(accepts);
  const { choice } = choosePayable(job, offer, SIGNER);
  if (!choice) throw new Error("nothing can be paid");
  return { job, calls, evaluated, offer, choice, check: () => checkOffers(job, { offer }, choice) };
};
const denied = (
  code: "daily_limit_exceeded" | "recipient_not_allowed",
  approvable = false,
): Partial<Verdict> => ({
  allowed: false,
  error: new ApiError(code, { detail: "No.", extra: { approvable } }),
});
const three = ["1", "2", "3"].map((amount) => terms({ amount }));

t.test("a single offer is left to the guardrails", async (t) => {
  const { check, calls } = payable([terms()]);
  const { chosen, verdict, offers } = await check();
  t.equal(chosen.place, 1);
  t.equal(verdict, undefined);
  t.equal(offers.length, 1);
  t.same(calls, []);
});

t.test("the first of several that passes", async (t) => {
  const first = payable(three);
  t.match(await first.check(), { chosen: { place: 1 }, verdict: { allowed: true } });
  t.same(first.calls, [`available ${ARC.chainId}`, `balance ${ARC.chainId}`, "evaluate 1"]);
  const asking = payable(three, { input: { requestApproval: true } });
  t.match(await asking.check(), { chosen: { place: 1 } }, "nothing has to be approved");
  const second = payable(three, { verdicts: { 1: denied("daily_limit_exceeded") } });
  const checked = await second.check();
  t.match(checked, {
    chosen: { place: 2 },
    verdict: { allowed: true },
    offers: [{ refused: { code: "daily_limit_exceeded", detail: "No." } }, {}, {}],
  });
  t.notOk("approvable" in (checked.offers[0]?.refused ?? {}));
  t.same(
    second.calls,
    [`available ${ARC.chainId}`, `balance ${ARC.chainId}`, "evaluate 1", "evaluate 2"],
    "read once",
  );
});

t.test(
  "if none passes, the cheapest is answered, or the cheapest that an owner can approve",
  async (t) => {
    const verdicts = {
      1: denied("recipient_not_allowed"),
      2: denied("daily_limit_exceeded", true),
      3: denied("daily_limit_exceeded", true),
    };
    t.match(await payable(three, { verdicts }).check(), {
      chosen: { place: 1 },
      verdict: { allowed: false },
    });
    t.match(await payable(three, { verdicts, input: { requestApproval: true } }).check(), {
      chosen: { place: 2 },
    });
    t.match(await payable(three, { verdicts, input: { requestApproval: false } }).check(), {
      chosen: { place: 1 },
    });
    const none = {
      1: denied("recipient_not_allowed"),
      2: denied("recipient_not_allowed"),
      3: denied("recipient_not_allowed"),
    };
    t.match(await payable(three, { verdicts: none, input: { requestApproval: true } }).check(), {
      chosen: { place: 1 },
    });
  },
);

t.test("a dry run explains every offer, also while a chain is down", async (t) => {
  const dry = payable(three, { input: { dryRun: true }, downChains: [ARC.chainId] });
  t.match(await dry.check(), { chosen: { place: 1 } });
  t.same(dry.calls, [`balance ${ARC.chainId}`, "evaluate 1", "evaluate 2", "evaluate 3"]);
});

t.test(
  "a chain that is down excludes only its own offers; other failures are no answer",
  async (t) => {
    const offers = [
      terms({ amount: "1" }, BASE),
      terms({ amount: "2" }, BASE),
      terms({ amount: "3" }),
    ];
    const down = payable(offers, { downChains: [BASE.chainId] });
    t.match(await down.check(), {
      chosen: { place: 3 },
      offers: [
        { refused: { code: "chain_unavailable" } },
        { refused: { code: "chain_unavailable" } },
        {},
      ],
    });
    t.same(down.calls, [
      `available ${BASE.chainId}`,
      `available ${ARC.chainId}`,
      `balance ${ARC.chainId}`,
      "evaluate 3",
    ]);
    const all = payable(offers.slice(0, 2), { downChains: [BASE.chainId] });
    t.match(await all.check(), { chosen: { place: 1 }, verdict: undefined });
    const failing = (error: Error) => payable(three, { verdicts: { 1: error } }).check();
    await t.rejects(failing(new Error("a defect")), /a defect/);
    await t.rejects(failing(new ApiError("invalid_api_key")), { code: "invalid_api_key" });
    t.match(
      await failing(new ApiError("internal_error")),
      { chosen: { place: 2 } },
      "a failure of ours",
    );
  },
);

t.test("the other offers stand beside a refusal", async (t) => {
  const error = new ApiError("daily_limit_exceeded", {
    detail: "No.",
    extra: { approvable: true, a: 1 },
  });
  const one = await payable([terms()]).check();
  t.equal(withOffers(one, [ARC], error), error, "there are none");
  const two = await payable(three.slice(0, 2)).check();
  t.match(withOffers(two, [ARC], error), {
    code: "daily_limit_exceeded",
    message: "No.",
    cause: error,
    extra: {
      a: 1,
      offers: [
        {
          offer: 1,
          chosen: true,
          refused: { code: "daily_limit_exceeded", detail: "No.", approvable: true },
        },
        { offer: 2, chosen: undefined },
      ],
    },
  });
  t.same(
    refusalOf(
      new ApiError("daily_limit_exceeded", { detail: "No.", extra: { approvable: "yes" } }),
    ),
    {
      code: "daily_limit_exceeded",
      detail: "No.",
    },
  );
});

t.test("what the guardrails decide on", async (t) => {
  const request = (
    over: Partial<OfferedTerms> = {},
    world: World = {},
    asked: object = {},
    offered?: unknown,
  ) => {
    const { job, choice, offer } = payable([terms(over)], world);
    return payRequest(job, { offer, ...asked }, choice.chosen, offered);
  };
  const plain = request();
  t.match(plain, {
    payer: { id: "agt_1" },
    kind: "x402",
    chainId: ARC.chainId,
    asset: ARC.usdc.address.toLowerCase(),
    to: PAYEE.toLowerCase(),
    site: "https://shop.example",
    amountAtomic: 1_000n,
    maxAmountAtomic: 9_000n,
    validForSeconds: 60,
    requestId: "req_1",
    url: URL_OF_TARGET,
    requirement: { x402Version: 2, accepted: { of: "1000" } },
    idempotency: { key: "k" },
    scheme: { name: "exact" },
    extra: {},
  });
  t.same(Object.keys(plain.requirement as object), ["x402Version", "accepted"]);
  for (const name of ["nonce", "boundNonce", "refusal", "balance", "channel"])
    t.notOk(name in plain, `without ${name}`);
  t.equal(plain.listingId, undefined);
  const binding = { nonce: HASH, key: "k" };
  t.match(request({ nonce: HASH, binding: binding as never }), {
    nonce: HASH,
    boundNonce: HASH,
    requirement: { binding },
  });
  t.match(request({}, { listing: LISTING }), { listingId: "lst_1" });
  t.match(request({}, {}, { refusal: { code: "url_blocked" } }), {
    refusal: { code: "url_blocked" },
  });
  t.match(request({}, {}, {}, { signed: 1 }), { requirement: { offered: { signed: 1 } } });
  const { job, choice } = payable([terms()]);
  const resource = { url: URL_OF_TARGET };
  t.match(payRequest(job, { offer: offerOf([], { resource }) }, choice.chosen), {
    requirement: { resource },
  });
  const mpp: ChosenTerms = { ...choice.chosen, terms: terms({ protocol: "mpp" }) };
  t.match(payRequest(job, { offer: offerOf([]) }, mpp), { requirement: { protocol: "mpp" } });

  const channel = request(THROUGH, { usesChannels: true });
  t.notOk("scheme" in channel);
  t.match((channel as { channel?: unknown }).channel, [
    WALLET,
    {
      chainId: ARC.chainId,
      receiver: PAYEE.toLowerCase(),
      token: ARC.usdc.address.toLowerCase(),
      offer: { signer: SIGNER },
    },
    Number,
  ]);

  const balance = Promise.resolve({ atomic: 7n, blockNumber: 1n, timestampSeconds: 1n });
  const early = (networkId: string, ageMs: number) => ({
    early: { networkId, startedMs: performance.now() - ageMs, balance },
  });
  t.equal(request({}, {}, early(ARC.id, 0)).balance, balance);
  t.notOk("balance" in request({}, {}, early(BASE.id, 0)), "of another network");
  t.notOk("balance" in request({}, {}, early(ARC.id, 2_001)), "too old");
  const known = payable(three);
  await checkOffers(known.job, { offer: known.offer, ...early(ARC.id, 0) }, known.choice);
  t.same(known.calls, [`available ${ARC.chainId}`, "evaluate 1"], "read before");
});

t.test("offers as they are answered: only what was read and checked", async (t) => {
  const offer = offerOf([
    terms(),
    terms({ ...THROUGH, amount: "5" }),
    terms({ asset: PAYEE }),
    terms({ network: "eip155:1", payTo: "x", scheme: "odd" }),
    terms({ amount: "1e3" }),
    terms({ asset: ARC.usdc.address.toUpperCase().replace("0X", "0x") }),
  ]);
  const options = {
    networks: [ARC],
    wallet: WALLET,
    preferredNetwork: ARC.id,
    usesChannels: true,
    channelSigner: SIGNER,
  };
  const { offers, ...choice } = chooseTerms(offer, options);
  const shown = offersForAnswer(offers, [ARC], choice.ok ? choice.chosen : undefined);
  t.match(shown, [
    { offer: 1, protocol: "x402", scheme: "exact", network: ARC.id, payTo: PAYEE, amount: "0.001" },
    { offer: 2, scheme: "batch-settlement", amount: "0.000005", maximum: true, chosen: true },
    { offer: 3, scheme: "exact", amount: null, refused: { code: "unsupported_asset" } },
    {
      offer: 4,
      scheme: null,
      network: null,
      payTo: null,
      amount: null,
      refused: { code: "unsupported_scheme" },
    },
    { offer: 5, amount: null, refused: { code: "amount_invalid" } },
    { offer: 6, amount: "0.001" },
  ]);
  t.same(Object.keys(shown[0] ?? {}), [
    "offer",
    "protocol",
    "scheme",
    "network",
    "payTo",
    "amount",
  ]);
  t.notOk(offersForAnswer(offers, [ARC]).some((one) => "chosen" in one));
  const chosen = choice.ok ? choice.chosen : undefined;
  if (!chosen) throw new Error("nothing was chosen");
  const [first] = offers;
  if (first) first.refused = { code: "daily_limit_exceeded", detail: "No." };
  t.same(explained(offers.slice(0, 2), chosen), [
    "Offer 1 refused (daily_limit_exceeded): No.",
    "Offer 2 chosen: the cheapest that rules and balance allow.",
  ]);
  t.match(explained(offers.slice(2, 3), chosen), [/^Offer 3 refused \(unsupported_asset\): Its/]);
  t.match(explained(offers.slice(5), chosen), [/^Offer 6 is possible but ranks lower/]);
  const second = offers[1];
  if (second) second.refused = { code: "daily_limit_exceeded", detail: "No." };
  t.same(explained(offers.slice(1, 2), chosen), [
    "Offer 2 refused (daily_limit_exceeded): batch-settlement maximum No.",
  ]);
  t.match(quotedReasons(offers), [/^Offer 3: asset/, /^Offer 4: scheme/, /^Offer 5: amount/]);
  t.match(quotedReasons(offers.slice(2, 3)), [/^asset/], "the only one");
});
