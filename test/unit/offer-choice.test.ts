// Goal: of a seller's offers the cheapest payable one is chosen, ties go to the agent's network, and every refusal has a reason.
import t from "tap";
import type { Address } from "viem";
import { exactEip3009 } from "../../server/schemes/exact-eip3009/index.ts";
import type { Scheme } from "../../server/schemes/scheme.ts";
import {
  chooseTerms,
  offersForAnswer,
  rank,
  termsOf,
  type Candidate,
  type ChooseOptions,
} from "../../server/plugins/x402-client/choose.ts";
import { offeredFor } from "../../server/plugins/payments/evidence.ts";
import { parseOffer } from "../../server/plugins/x402-client/ask.ts";
import type { OfferedTerms } from "../../server/plugins/x402-client/terms.ts";
import { ARC, BASE_SEPOLIA as BASE, PAYEE, PAYER as WALLET } from "./payment-samples.ts";

const OTHER: Address = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";

const CANCELABLE: Scheme = exactEip3009;

const terms = (over: Partial<OfferedTerms> = {}, network = ARC): OfferedTerms => ({
  protocol: "x402",
  scheme: "exact",
  network: network.id,
  amount: "1000",
  asset: network.usdc.address,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  extra: {},
  raw: {},
  ...over,
});

const choose = (accepts: OfferedTerms[], over: Partial<ChooseOptions> = {}) =>
  chooseTerms(
    { x402Version: 2, accepts, resource: undefined, extensions: undefined, error: undefined },
    { networks: [ARC, BASE], wallet: WALLET, preferredNetwork: ARC.id, ...over },
  );

function chosen(accepts: OfferedTerms[], over: Partial<ChooseOptions> = {}) {
  const choice = choose(accepts, over);
  if (!choice.ok) throw new Error(choice.reasons.join("; "));
  return choice.chosen;
}

t.test("the cheapest is chosen, at any position", async (t) => {
  const prices = ["30", "7", "100", "8"];
  for (let turn = 0; turn < prices.length; turn += 1) {
    const turned = [...prices.slice(turn), ...prices.slice(0, turn)];
    t.equal(chosen(turned.map((amount) => terms({ amount }))).amountAtomic, 7n);
  }
  t.equal(
    chosen([terms({ amount: "9007199254740993" }), terms({ amount: "9007199254740992" })])
      .amountAtomic,
    9_007_199_254_740_992n,
    "exact beyond a double's precision",
  );
});

t.test("a tie goes to the agent's network, then to the seller's order", async (t) => {
  const here = terms();
  const there = terms({}, BASE);
  for (const accepts of [
    [here, there],
    [there, here],
  ]) {
    t.equal(chosen(accepts).network.id, ARC.id);
    t.equal(chosen(accepts, { preferredNetwork: BASE.id }).network.id, BASE.id);
  }
  const undecided = { preferredNetwork: undefined };
  t.equal(chosen([there, here], undecided).network.id, BASE.id, "else the seller's order");
  t.equal(chosen([terms({ payTo: OTHER }), here]).payTo, OTHER.toLowerCase());
  t.equal(
    chosen([terms({ amount: "1001" }), { ...there, amount: "1000" }]).network.id,
    BASE.id,
    "a better price comes before the network",
  );
});

t.test("the order of payable offers", async (t) => {
  const uncancelable = Object.fromEntries(
    Object.entries(exactEip3009).filter(([name]) => name !== "cancelDigest"),
  ) as unknown as Scheme;
  const candidate = (
    place: number,
    amountAtomic: bigint,
    { network = ARC, scheme = CANCELABLE, isMaximum = false } = {},
  ): Candidate => ({
    place,
    terms: terms(),
    payable: {
      scheme,
      network,
      asset: "0x0",
      payTo: PAYEE,
      amountAtomic,
      ...(isMaximum && { isMaximum }),
      validForSeconds: 60,
      terms: terms(),
    },
  });
  const better = [
    candidate(9, 5n, { network: BASE, isMaximum: true }),
    candidate(8, 7n, { isMaximum: true }),
    candidate(2, 10n),
    candidate(7, 10n),
    candidate(1, 10n, { scheme: uncancelable }),
    candidate(3, 10n, { network: BASE }),
    candidate(6, 10n, { network: BASE, scheme: uncancelable }),
    candidate(4, 11n),
  ];
  const places = better.map(({ place }) => place);
  let seed = 7;
  const chance = (): number => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  for (let turn = 0; turn < 50; turn += 1) {
    const shuffled = better
      .map((each) => ({ each, at: chance() }))
      .sort((left, right) => left.at - right.at)
      .map(({ each }) => each);
    t.same(
      rank(shuffled, ARC.id).map(({ place }) => place),
      places,
      "price (the maximum where the price is one), own network, cancelable, the seller's order",
    );
  }
});

t.test("an offer that was refused when it was read, and a payer that is not known", async (t) => {
  const refused = { code: "challenge_expired", quoting: "it is odd" } as const;
  const choice = choose([terms({ refused }), terms({ amount: "5000" })]);
  t.match(choice, { ok: true, chosen: { amountAtomic: 5_000n } });
  t.match(choice.offers[0], { refused: { code: "challenge_expired" }, quoting: "it is odd" });
  t.match(choose([terms()], { wallet: undefined }), { ok: true });
});

t.test("offers of payment channels", async (t) => {
  const channelSigner: Address = "0x1111111111111111111111111111111111111111";
  const receiverAuthorizer = OTHER.toLowerCase();
  const extra = {
    name: ARC.usdc.name,
    version: ARC.usdc.version,
    receiverAuthorizer,
    withdrawDelay: 900,
  };
  const through = (over: Partial<OfferedTerms> = {}) =>
    terms({ scheme: "batch-settlement", extra, ...over });
  const uses = { usesChannels: true, channelSigner };
  const channel = {
    receiverAuthorizer,
    withdrawDelay: 900,
    minDepositAtomic: 0n,
    signer: channelSigner,
  };
  t.match(chosen([through()], uses), { channel, isMaximum: true, amountAtomic: 1_000n });
  t.match(chosen([terms(), through()], uses), { channel }, "at the same price");
  t.equal(chosen([terms({ amount: "999" }), through()], uses).channel, undefined);
  t.notOk("isMaximum" in chosen([terms()]));

  // Without the owner's permission there is one only if nothing else can be paid: then the guardrails say what is missing.
  const without = { channelSigner };
  const both = choose([through({ amount: "1" }), terms(), through({ amount: "2" })], without);
  t.ok(both.ok && both.chosen.channel === undefined);
  const refused = {
    code: "channel_not_allowed",
    detail: "The agent's owner allows no payment channels.",
  };
  t.match(both.offers, [{ refused }, { payable: { amountAtomic: 1_000n } }, { refused }]);
  t.same(
    both.offers.map((offer) => "payable" in offer),
    [false, true, false],
  );
  const answered = (accepts: OfferedTerms[], over: Partial<ChooseOptions>) =>
    offersForAnswer(choose(accepts, over).offers, [ARC]);
  t.match(
    answered([through({ amount: "1" }), terms(), through({ protocol: "mpp" })], without),
    [
      { scheme: "batch-settlement", maximum: true, refused },
      { scheme: "exact", maximum: undefined },
      { scheme: null },
    ],
    "a refused one names its scheme too",
  );
  t.match(chosen([through({ amount: "5" }), through()], without), { channel, amountAtomic: 5n });
  t.match(chosen([through(), terms({ scheme: "other" })], without), { channel });

  const reasons = (accepts: OfferedTerms[], over: Partial<ChooseOptions>) => {
    const choice = choose(accepts, over);
    return choice.ok ? [] : choice.reasons;
  };
  t.match(reasons([through()], { usesChannels: true }), [/no key for payment channels/]);
  t.match(reasons([through({ extra: { ...extra, withdrawDelay: 1 } })], uses), [/withdrawDelay/]);
  t.match(reasons([through({ protocol: "mpp" })], uses), [/is not supported/]);
  const old = chooseTerms(
    {
      x402Version: 1,
      accepts: [through()],
      resource: undefined,
      extensions: undefined,
      error: undefined,
    },
    { networks: [ARC], wallet: undefined, preferredNetwork: ARC.id, ...uses },
  );
  t.match(old, { ok: false, reasons: [/is not supported/] }, "not in version 1");
});

t.test("a condition of the caller excludes offers", async (t) => {
  const accepts = [terms({ payTo: OTHER, amount: "1" }), terms()];
  const refuse: ChooseOptions["refuse"] = ({ payTo }) =>
    payTo === OTHER.toLowerCase() ? "not this payee" : undefined;
  t.equal(chosen(accepts, { refuse }).amountAtomic, 1000n, "the cheaper one is not acceptable");
  t.same(choose(accepts, { refuse: () => "never" }), {
    ok: false,
    reasons: ["never", "never"],
    offers: accepts.map((terms, index) => ({
      place: index + 1,
      terms,
      refused: { code: "listing_mismatch", detail: "never" },
      quoting: "never",
    })),
  });
  const checked: bigint[] = [];
  choose([terms({ scheme: "upto" }), terms()], {
    refuse: ({ amountAtomic }) => {
      checked.push(amountAtomic);
      return undefined;
    },
  });
  t.same(checked, [1000n], "checked only for offers that could be paid at all");
});

const REASONS: [string, Partial<OfferedTerms>, RegExp][] = [
  ["scheme", { scheme: "subscription" }, /^scheme "subscription" is not supported$/],
  ["channel", { scheme: "batch-settlement" }, /no key for payment channels/],
  ["facilitator", { scheme: "upto" }, /^extra\.facilitatorAddress /],
  ["network", { network: "eip155:1" }, /^network "eip155:1" is not configured here$/],
  ["asset", { asset: OTHER }, /^asset "0x90F7\w+" is not its USDC$/],
  ["amount zero", { amount: "0" }, /^amount "0" is not a positive number of atomic units$/],
  ["amount", { amount: "1.5" }, /^amount "1\.5" is not a positive/],
  ["payee", { payTo: "vitalik.eth" }, /^payTo "vitalik\.eth" /],
  ["token as payee", { payTo: ARC.usdc.address }, /^payTo is the token itself$/],
  ["own wallet", { payTo: WALLET }, /^payTo is the paying wallet itself$/],
  ["time", { maxTimeoutSeconds: 0.9 }, /^maxTimeoutSeconds 0\.9 leaves no time to pay$/],
  ["token name", { extra: { name: "usdc2" } }, /^token name "usdc2" is not USDC/],
  [
    "Circle's Gateway",
    { extra: { name: "GatewayWalletBatched", version: "1" } },
    /^It is for Circle's Gateway \(GatewayWalletBatched\)/,
  ],
  ["token version", { extra: { version: "1" } }, /^token version is not 2$/],
  ["contract", { extra: { verifyingContract: OTHER } }, /^verifyingContract is not the token$/],
  ["chain id", { extra: { chainId: 1 } }, /^chainId is not the network's$/],
  ["decimals", { extra: { decimals: 18 } }, /^decimals are not those of USDC$/],
  ["method", { extra: { assetTransferMethod: "erc7710" } }, / is not supported$/],
];

for (const [what, over, reason] of REASONS)
  t.test(`refused for its ${what}`, async (t) => {
    const choice = choose([terms(over)]);
    t.equal(choice.ok, false);
    t.match(choice, { reasons: [reason] });
    t.equal(chosen([terms(over), terms()]).amountAtomic, 1000n, "and the next entry is paid");
  });

t.test("reasons come in the seller's order and stay short for any input", async (t) => {
  const choice = choose([terms({ scheme: "x".repeat(5_000) }), terms({ amount: "0" })]);
  t.match(choice, { ok: false, reasons: [/^scheme "x{80}" is/, /^amount/] });
  t.same(choose([]), { ok: false, reasons: [], offers: [] });
});

t.test("the signed terms come from our own network table", async (t) => {
  const asWritten = terms({ asset: ARC.usdc.address.toLowerCase(), maxTimeoutSeconds: 30.9 });
  const choice = chosen([asWritten]);
  t.match(choice, {
    asset: ARC.usdc.address.toLowerCase(),
    payTo: PAYEE.toLowerCase(),
    validForSeconds: 30,
  });
  t.equal(choice.terms, asWritten, "the seller's entry is kept unchanged for the proof");
  t.equal(chosen([terms({ maxTimeoutSeconds: 86_400 })]).validForSeconds, 120, "never longer");
  t.same(termsOf(new URL("https://seller.example:8443/a?b"), choice), {
    host: "seller.example:8443",
    payTo: PAYEE.toLowerCase(),
    asset: ARC.usdc.address.toLowerCase(),
    network: ARC.id,
    priceAtomic: 1000n,
  });
});

t.test("the kept signed offer is the one for the paid terms, or the only one", async (t) => {
  const raw = { scheme: "exact", network: ARC.id, amount: "5", asset: ARC.usdc.address };
  const entry = { ...raw, payTo: PAYEE, maxTimeoutSeconds: 60, extra: {} };
  const signed = (acceptIndex: number) => ({ format: "eip712", acceptIndex, payload: {} });
  const offered = (offers: object[], accepts: object[]) => {
    const required = {
      x402Version: 2,
      accepts,
      resource: { url: "https://shop.example/" },
      extensions: { "offer-receipt": { info: { offers } } },
    };
    const parsed = parseOffer(
      Buffer.from(JSON.stringify(required)).toString("base64"),
      Buffer.of(),
    );
    const [first] = parsed.ok ? parsed.offer.accepts : [];
    if (!parsed.ok || !first) throw new Error("no offer");
    return { offer: parsed.offer, first };
  };
  const sent = offered([signed(0), signed(1)], [{ malformed: true }, entry]);
  t.match(
    offeredFor(sent.offer, sent.first),
    { acceptIndex: 1 },
    "matched by its index in the original list",
  );
  const strange = offered([signed(7), signed(8)], [entry]);
  t.equal(
    offeredFor(strange.offer, strange.first),
    undefined,
    "none of several with unknown indexes",
  );
  const only = offered([signed(7)], [entry]);
  t.match(offeredFor(only.offer, only.first), { acceptIndex: 7 });
  t.equal(offeredFor(only.offer, { ...only.first, protocol: "mpp" }), undefined, "none for MPP");
});
