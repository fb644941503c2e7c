// Goal: on hundreds of bodies for payment channels, verdicts and codes of verify and settle equal those of the published
// facilitator's class, except for the reasons in this file; what both settle leaves the same on the chain.
import type { FacilitatorClient } from "@x402/core/server";
import t, { type Test } from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import { AMPLE_GAS, testApp } from "../helpers/app.ts";
import { CHANNELS, CHANNELS_ABI, channelIdOf } from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { stockFacilitator } from "../helpers/stock-channels.ts";
import { isFullTier } from "../helpers/tier.ts";
import type { Difference } from "./differences.ts";
import { account, channelOf, open, type Channel } from "./channel-bodies.ts";
import { bentChannelSettles, bentChannelVerifies, type BentSettle } from "./channel-payments.ts";
import { post, type Body } from "./payments.ts";

const OWN = "invalid_batch_settlement_evm_";
const FIELD =
  /^(voucher|refund|eip3009|permit2|deposit|claim|settle): payment(Requirements|Payload)/;
const DIFFERENCES: readonly Difference[] = [
  {
    payments: FIELD,
    reference: [
      "valid",
      "payload_type",
      "channel_id_mismatch",
      "receiver_mismatch",
      "token_mismatch",
      "withdraw_delay_mismatch",
      "voucher_signature",
      "receive_authorization_signature",
      "payload_authorization_valid_before",
      "payload_authorization_valid_after",
      "permit2_invalid_signature",
      "permit2_amount_mismatch",
      "permit2_deadline_expired",
    ],
    purser: "invalid_payload",
    why: "Purser parses strictly, and names the field. The reference looks only for the fields' names, and converts their values in its own ways.",
  },
  {
    payments: /voucher\.channelId = absent$/,
    reference: ["payload_type"],
    purser: "channel_id_mismatch",
    why: "What is not there is not the channel's id.",
  },
  {
    payments: /deposit\.authorization(\.permit2Authorization)? = /,
    reference: ["payload_type"],
    purser: "erc3009_authorization_required",
    why: "The code names what is missing.",
  },
  {
    payments: /^eip3009: paymentRequirements\.extra\.(name|version) = /,
    reference: ["receive_authorization_signature"],
    purser: "missing_eip712_domain",
    why: "A name must be a string.",
  },
  {
    payments:
      /^(eip3009|permit2)(, names another method$|: paymentRequirements\.extra\.assetTransferMethod = )/,
    reference: ["permit2_allowance_required", "erc3009_authorization_required"],
    purser: "payload_type",
    why: "The reference checks a deposit with an unknown method first as one of EIP-3009 and then as one of Permit2.",
  },
  {
    payments: /^(voucher|refund), signed by (key|payer), (high s|v as 0 or 1|odd digits)$/,
    reference: ["valid"],
    purser: "voucher_signature",
    why: "The contract refuses such a signature at the claim: the receiver could not claim this voucher. With odd digits, the reference takes half of the last byte as a `v` of 1, which is right for every second signature.",
  },
  {
    payments: /^(eip3009|permit2), compact signature$/,
    reference: ["receive_authorization_signature", "permit2_invalid_signature"],
    purser: "valid",
    why: "EIP-2098 signatures are valid; Purser expands them before it sends them.",
  },
  {
    payments: /^(eip3009|permit2), v as 0 or 1$/,
    reference: ["deposit_simulation_failed"],
    purser: "valid",
    why: "Contracts need 27 or 28; Purser converts it before it sends it.",
  },
  {
    payments: /^eip3009, high s$/,
    reference: ["deposit_simulation_failed"],
    purser: "receive_authorization_signature",
    why: "Purser refuses a malleable signature before it calls the chain.",
  },
  {
    payments: /^permit2, high s$/,
    reference: ["valid"],
    purser: "permit2_invalid_signature",
    why: "Purser refuses a malleable signature, as for all payments.",
  },
  {
    payments: /^permit2, witness in upper case$/,
    reference: ["channel_id_mismatch"],
    purser: "valid",
    why: "The bytes are the same.",
  },
  {
    payments: /^(eip3009|permit2), another token$/,
    reference: ["rpc_read_failed", "permit2_allowance_required"],
    purser: "token_mismatch",
    why: "Purser settles only USDC.",
  },
  {
    payments: /^(eip3009|permit2), no code at the token$/,
    reference: ["rpc_read_failed", "permit2_allowance_required"],
    purser: "asset_not_deployed_contract",
    why: "Purser settles only USDC, and the protocol has a code for an asset without a contract.",
  },
  {
    payments: /^(eip3009|permit2), receiver zero$/,
    reference: ["deposit_simulation_failed"],
    purser: "invalid_payload",
    why: "Purser pays no zero address; the contract refuses it.",
  },
  {
    payments: /^(eip3009|permit2), of 340282366920938463463374607431768211456$/,
    reference: ["insufficient_balance"],
    purser: "invalid_payload",
    why: "The contract's amounts have 128 bits.",
  },
  {
    payments: /^sponsored, (amount|nonce|deadline|signature) = /,
    reference: [
      "valid",
      "eip2612_deadline_expired",
      "eip2612_amount_mismatch",
      "deposit_simulation_failed",
    ],
    purser: "invalid_eip2612_extension_format",
    why: "Integers must be strings, and a permit's signature has 65 bytes.",
  },
  {
    payments: /^approved, (less than the deposit|another chain)$/,
    reference: ["deposit_simulation_failed", "valid"],
    purser: "erc20_approval_tx_failed",
    why: "An approval that does not cover the deposit has its own code; the reference simulates, or does not notice.",
  },
  {
    payments: /^approved, (no coins|a nonce to come)$/,
    reference: ["valid"],
    purser: "erc20_approval_broadcast_failed",
    why: "The network would not include this approval now. The reference's simulation does not show that.",
  },
  {
    payments: /^approved, no balance/,
    reference: ["deposit_simulation_failed"],
    purser: "insufficient_balance",
    why: "The code names what is missing.",
  },
  {
    payments: /^approved, too little gas$/,
    reference: ["deposit_simulation_failed"],
    purser: "permit2_allowance_required",
    why: "The same: after this approval there is still no allowance.",
  },
  {
    payments: /^wallet Expensive, /,
    reference: ["valid", "channel_not_found", "voucher_signature", "permit2_allowance_required"],
    purser: "receive_authorization_signature",
    why: "A wallet's signature check must fit the gas cap of one settlement.",
  },
  {
    payments: /^wallet Expensive, voucher, no channel$/,
    reference: ["channel_not_found"],
    purser: "voucher_signature",
    why: "The same at a claim.",
  },
  {
    payments: /^wallet Expensive, no allowance$/,
    reference: ["permit2_allowance_required"],
    purser: "permit2_invalid_signature",
    why: "The same over Permit2.",
  },
];

const FAILED = [
  "claim_simulation_failed",
  "refund_simulation_failed",
  "refund_transaction_failed",
  "nothing_to_settle",
  "authorizer_not_configured",
];
const SETTLE_DIFFERENCES: readonly Difference[] = [
  {
    payments: /^(claim|settle|refund): payment(Requirements|Payload)/,
    reference: FAILED,
    purser: "invalid_payload",
    why: "Purser parses strictly, and names the field; the reference fails at the contract or in its encoder.",
  },
  {
    payments: /AuthorizerSignature = "0x"$/,
    reference: ["claim_simulation_failed", "refund_simulation_failed"],
    purser: "authorizer_not_configured",
    why: "No bytes are no signature.",
  },
  {
    payments: /^refund: paymentPayload\.payload\.voucher\.channelId = /,
    reference: ["valid"],
    purser: "channel_id_mismatch",
    why: "The reference does not read the voucher of a refund.",
  },
  {
    payments:
      /^refund: paymentPayload\.payload\.channelConfig\.(withdrawDelay = 7|\w+Authorizer = "0x0{40}")$/,
    reference: ["refund_simulation_failed"],
    purser: "channel_id_mismatch",
    why: "The same: another configuration is another channel than the voucher's.",
  },
  {
    payments: /^(claim|settle|refund): paymentPayload\.accepted\.scheme = /,
    reference: ["valid"],
    purser: "scheme",
    why: "The reference reads what was accepted at a verify only.",
  },
  {
    payments: /^(claim|settle|refund): paymentPayload\.accepted\.network = /,
    reference: ["valid"],
    purser: "network_mismatch",
    why: "The same.",
  },
  {
    payments: /^(claim|refund), \S+ignature, (without 0x|odd digits|10 KB)$/,
    reference: FAILED,
    purser: "invalid_payload",
    why: "A signature is bytes, and of a bounded length.",
  },
  {
    payments: /^claim of 101 rows$/,
    reference: ["valid"],
    purser: "invalid_payload",
    why: "A claim has at most 100 rows, as the published server sends them.",
  },
  {
    payments: /^claim of another token$/,
    reference: ["claim_simulation_failed"],
    purser: "token_mismatch",
    why: "Purser settles only USDC.",
  },
  {
    payments: /^(claim of nothing|refund of 0)$/,
    reference: ["claim_simulation_failed", "refund_simulation_failed"],
    purser: "invalid_payload",
    why: "It would do nothing.",
  },
  {
    payments: /^refund with a claim above the balance$/,
    reference: ["refund_simulation_failed"],
    purser: "refund_no_balance",
    why: "Nothing is left after such a claim.",
  },
];

/** The default tier takes every named body's kind at some places of the list; the full tier all. */
const EVERY = 23;
const isTaken = (_: unknown, index: number): boolean => isFullTier || index % EVERY === 0;

type Result = Record<string, unknown>;
const resultOf = (answer: Result): string =>
  answer["isValid"] === true || answer["success"] === true
    ? "valid"
    : String(answer["invalidReason"] ?? answer["errorReason"]).replace(OWN, "");

async function ask(
  reference: FacilitatorClient,
  operation: "verify" | "settle",
  { paymentPayload, paymentRequirements }: Body,
): Promise<Result> {
  try {
    return {
      ...(await reference[operation](paymentPayload as never, paymentRequirements as never)),
    };
  } catch {
    return { errorReason: "throws" };
  }
}

/** The difference that explains two results; "same" if there is none, undefined if it is not listed. */
function explain(name: string, reference: string, purser: string): Difference | "same" | undefined {
  if (reference === purser) return "same";
  // Its HTTP server could only return an error. Any answer of the protocol is better.
  if (reference === "throws" && purser !== "valid" && !purser.startsWith("unexpected"))
    return "same";
  return [...DIFFERENCES, ...SETTLE_DIFFERENCES].find(
    (difference) =>
      difference.payments.test(name) &&
      difference.reference.includes(reference) &&
      difference.purser === purser,
  );
}

/** Purser writes ids in lower case and addresses with a checksum; the reference repeats what was sent. */
const lower = (value: unknown): string => JSON.stringify(value).toLowerCase();

function compare(
  t: Test,
  met: Set<Difference>,
  name: string,
  { theirs, ours }: { theirs: Result; ours: Result },
): boolean {
  const explained = explain(name, resultOf(theirs), resultOf(ours));
  if (explained === undefined)
    t.fail(`${name}: the reference returns ${resultOf(theirs)}, Purser returns ${resultOf(ours)}`);
  else if (explained !== "same") met.add(explained);
  const reason = (ours["invalidReason"] ?? ours["errorReason"]) as string | undefined;
  if (reason !== undefined) t.ok(reason in REASONS, `${name}: ${reason} is of the protocol`);
  return resultOf(theirs) === "valid" && resultOf(ours) === "valid";
}

function expectMet(t: Test, met: ReadonlySet<Difference>, listed: readonly Difference[]): void {
  if (!isFullTier) return;
  for (const difference of listed)
    t.ok(met.has(difference), `still different: ${String(difference.payments)}`);
}

t.test("channels", async (t) => {
  const { app, chain } = await testApp(t, {
    env: { MIN_PAYMENT: "0", GAS_BUDGET_5042002: AMPLE_GAS, PAYER_APPROVALS_5042002: "true" },
  });
  const [account2] = chain.accounts;
  if (!account2) throw new Error("no account");
  const reference = stockFacilitator({ ...chain, relayer: account2 });

  await t.test("verify", async (t) => {
    const bodies = await bentChannelVerifies(chain);
    t.ok(bodies.length > 2_000, `${bodies.length} bodies`);
    const met = new Set<Difference>();
    for (const { name, body } of bodies.filter(isTaken)) {
      const theirs = await ask(reference, "verify", body);
      const ours = await post(app, "verify", body);
      if (!compare(t, met, name, { theirs, ours })) continue;
      t.equal(lower(ours["extra"]), lower(theirs["extra"]), `${name}: the same state`);
      t.equal(lower(ours["payer"]), lower(theirs["payer"]), `${name}: the same payer`);
    }
    expectMet(t, met, DIFFERENCES);
  });

  await t.test("settle", async (t) => {
    const bodies = bentChannelSettles();
    t.ok(bodies.length > 700, `${bodies.length} bodies`);
    const met = new Set<Difference>();
    let kept: { before: string; pair: readonly [Channel, Channel] } | undefined;
    for (const { name, make, before } of bodies.filter(isTaken)) {
      const wanted = before ? `${before.balance} ${before.claimed}` : "none";
      const pair =
        kept?.before === wanted
          ? kept.pair
          : ([await made(chain, before), await made(chain, before)] as const);
      kept = { before: wanted, pair };
      const [their, our] = pair;
      const theirs = await ask(reference, "settle", await make(their));
      const ours = await post(app, "settle", await make(our));
      const isSettled = compare(t, met, name, { theirs, ours });
      // What was settled is another channel than before.
      if (resultOf(theirs) === "valid" || resultOf(ours) === "valid") kept = undefined;
      if (!isSettled) continue;
      t.equal(ours["amount"], theirs["amount"], `${name}: the same amount`);
      t.equal(
        lower(ours["payer"] ?? "").replace(our.config.payer.toLowerCase(), "payer"),
        lower(theirs["payer"] ?? "").replace(their.config.payer.toLowerCase(), "payer"),
        `${name}: the payer`,
      );
      t.equal(
        lower(ours["extra"] ?? {}).replace(channelIdOf(chain, our.config), "id"),
        lower(theirs["extra"] ?? {}).replace(channelIdOf(chain, their.config), "id"),
        `${name}: the same answer`,
      );
      t.same(await stateOf(our), await stateOf(their), `${name}: the same state`);
    }
    expectMet(t, met, SETTLE_DIFFERENCES);
  });
});

async function made(chain: TestChain, before: BentSettle["before"]): Promise<Channel> {
  const channel = channelOf(chain, { voucherKey: account() });
  if (before === undefined || before.balance > 0n)
    await chain.mint(channel.config.payer, before ? 10_000n : 20_000n);
  if (before && before.balance > 0n) await open(channel, before.balance, before.claimed);
  return channel;
}

/** Everything on the chain that a settle may change. */
async function stateOf({ chain, config }: Channel) {
  const id = channelIdOf(chain, config);
  const read = { address: CHANNELS, abi: CHANNELS_ABI } as const;
  const client = chain.publicClient;
  return {
    channel: await client.readContract({ ...read, functionName: "channels", args: [id] }),
    nonce: await client.readContract({ ...read, functionName: "refundNonce", args: [id] }),
    sums: await client.readContract({
      ...read,
      functionName: "receivers",
      args: [config.receiver, config.token],
    }),
    payer: await chain.usdcOf(config.payer),
    receiver: await chain.usdcOf(config.receiver),
  };
}
