// Goal: a voucher is good exactly if its receiver can claim it: signed so that the contract accepts it, covered by what
// is in the channel, and above what was claimed; reasons come in the protocol's order.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  hexToBytes,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  serializeErc6492Signature,
  signatureToCompactSignature,
  toHex,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import type { ChannelConfig } from "../../server/core/authorization.ts";
import { addressOf, sign } from "../../server/core/signatures.ts";
import { VoucherChecker, type CheckDeps } from "../../server/plugins/channels/check.ts";
import type { PaymentResult } from "../../server/plugins/facilitator/verify.ts";
import {
  channelIdOf,
  voucherDigest,
  type ChannelState,
} from "../../server/schemes/batch-settlement/index.ts";
import { refuse, type Payment, type Reason } from "../../server/schemes/scheme.ts";
import { ARC, BASE_SEPOLIA } from "./payment-samples.ts";

const OWN = "invalid_batch_settlement_evm_";
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const random = (bytes: number): Hex => toHex(randomBytes(bytes));
const [payerKey, voucherKey, otherKey] = [randomBytes(32), randomBytes(32), randomBytes(32)];
const PAYER = addressOf(payerKey);

const CONFIG: ChannelConfig = {
  payer: PAYER,
  payerAuthorizer: addressOf(voucherKey),
  receiver: random(20),
  receiverAuthorizer: random(20),
  token: ARC.usdc.address.toLowerCase() as Address,
  withdrawDelay: 900,
  salt: random(32),
};
const BY_PAYER: ChannelConfig = { ...CONFIG, payerAuthorizer: zeroAddress };

interface Given {
  type?: "deposit" | "voucher" | "refund";
  config?: ChannelConfig;
  ceiling?: bigint;
  key?: Uint8Array;
  /** Changes the signature. */
  bend?: (signature: Hex) => string;
  deposit?: unknown;
}

function bodyOf(given: Given = {}) {
  const { type = "voucher", config = CONFIG, ceiling = 3_000n, deposit } = given;
  const key = given.key ?? (config.payerAuthorizer === zeroAddress ? payerKey : voucherKey);
  const channelId = channelIdOf(ARC.chainId, config);
  const signature = sign(hexToBytes(voucherDigest(ARC.chainId, channelId, ceiling)), key);
  const requirements = {
    scheme: "batch-settlement",
    network: ARC.id,
    asset: config.token,
    amount: "1000",
    payTo: config.receiver,
    maxTimeoutSeconds: 60,
    extra: {
      receiverAuthorizer: config.receiverAuthorizer,
      withdrawDelay: 900,
      name: "USDC",
      version: "2",
    },
  };
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: requirements,
      payload: {
        type,
        channelConfig: config,
        voucher: {
          channelId,
          maxClaimableAmount: `${ceiling}`,
          signature: given.bend?.(signature) ?? signature,
        },
        ...(type === "deposit" && { deposit: deposit ?? DEPOSIT }),
      },
    },
    paymentRequirements: requirements,
  };
}
const DEPOSIT = {
  amount: "5000",
  authorization: {
    erc3009Authorization: {
      validAfter: "0",
      validBefore: "2000000000",
      salt: random(32),
      signature: `0x${"ab".repeat(65)}`,
    },
  },
};

const USUAL: ChannelState = {
  balance: 10_000n,
  totalClaimed: 2_100n,
  withdrawRequestedAt: 7n,
  refundNonce: 4n,
};

interface Scene {
  state?: Partial<ChannelState> | "unreadable";
  /** The answer about the deposit's own payment. */
  checked?: Reason | "valid";
  hasCode?: boolean;
  /** What screening says of the payer and the receiver. */
  screened?: "address_screened" | "screening_unavailable";
  accepts?: (signature: Hex) => boolean;
  /** The block of our own deposit, and the state there; undefined: no endpoint has it. */
  deposit?: { shown: Partial<ChannelState> | undefined };
}

function scene(given: Scene = {}) {
  const { state = {}, checked = "valid", hasCode = false, accepts, deposit, screened } = given;
  const log: string[] = [];
  const shown: Hex[] = [];
  const deps: CheckDeps = {
    networks: [ARC, BASE_SEPOLIA],
    states: () =>
      ({
        newest: async () => {
          log.push("state");
          return state === "unreadable" ? undefined : { ...USUAL, ...state };
        },
        at: async (_id: Hex, block: bigint) => {
          log.push(`state at ${block}`);
          return deposit?.shown && { ...USUAL, ...deposit.shown };
        },
      }) as never,
    screening: screened && {
      refusalOfPayment: async (addresses) => {
        log.push(`screening ${addresses.join(" ")}`);
        return screened;
      },
    },
    depositBlock: async () => {
      log.push("deposit");
      return deposit && 9n;
    },
    reads: () => ({
      hasCode: async (address) => {
        log.push(`code ${address}`);
        return hasCode;
      },
      acceptsSignature: async (wallet, digest, signature) => {
        log.push(`wallet ${wallet} ${digest}`);
        shown.push(signature);
        return accepts?.(signature) ?? false;
      },
    }),
    checkPayment: async (payment: Payment): Promise<PaymentResult> => {
      log.push(`payment ${payment.authorization.value}`);
      return checked === "valid"
        ? {
            isValid: true,
            payment,
            authorization: { ...payment.authorization, signature: "0x" },
          }
        : refuse(checked, payment.payer);
    },
  };
  const check = (body: unknown) => new VoucherChecker(deps).check(body);
  const reasonOf = async (given: Given = {}): Promise<string> => {
    const result = await check(bodyOf(given));
    return result.isValid ? "valid" : result.reason.replace(OWN, "");
  };
  return { check, reasonOf, log, shown };
}

t.test("a good voucher is answered with the channel's state", async (t) => {
  for (const type of ["voucher", "refund"] as const) {
    const { check, log } = scene();
    const result = await check(bodyOf({ type }));
    t.ok(result.isValid);
    if (!result.isValid) continue;
    t.equal(result.payment.payer.toLowerCase(), PAYER);
    t.equal(result.payment.amountAtomic, 1_000n, "the amount is the request's");
    t.same(result.extra, {
      channelId: channelIdOf(ARC.chainId, CONFIG),
      balance: "10000",
      totalClaimed: "2100",
      withdrawRequestedAt: 7,
      refundNonce: "4",
    });
    t.same(log, ["state"], "an authorizer is a plain key: only the state is read");
  }
});

t.test(
  "a voucher of a screened address pays nothing, and its refund is not screened",
  async (t) => {
    for (const screened of ["address_screened", "screening_unavailable"] as const) {
      const { reasonOf, log } = scene({ screened });
      t.equal(await reasonOf(), screened);
      t.same(log, ["state", `screening ${PAYER} ${CONFIG.receiver}`]);
      t.equal(await reasonOf({ type: "refund" }), "valid");
      t.equal(log.length, 3, "a refund is the payer's own money");
      t.equal(await reasonOf({ key: otherKey }), "voucher_signature");
      t.equal(log.length, 3, "nobody else can ask");
    }
  },
);

t.test("the ceiling lies between what was claimed and what is there", async (t) => {
  const cases: [bigint, string, string][] = [
    [0n, "cumulative_below_claimed", "cumulative_below_claimed"],
    [2_099n, "cumulative_below_claimed", "cumulative_below_claimed"],
    [2_100n, "cumulative_below_claimed", "valid"],
    [2_101n, "valid", "valid"],
    [10_000n, "valid", "valid"],
    [10_001n, "cumulative_exceeds_balance", "cumulative_exceeds_balance"],
    [2n ** 128n - 1n, "cumulative_exceeds_balance", "cumulative_exceeds_balance"],
  ];
  for (const [ceiling, voucher, refund] of cases) {
    const { reasonOf } = scene();
    t.equal(await reasonOf({ ceiling }), voucher, `${ceiling}`);
    t.equal(await reasonOf({ ceiling, type: "refund" }), refund, `refund ${ceiling}`);
  }
  t.equal(await scene({ state: { balance: 0n } }).reasonOf(), "channel_not_found");
  const spent = scene({ state: { balance: 3_000n, totalClaimed: 3_000n } });
  t.equal(await spent.reasonOf(), "cumulative_below_claimed");
  t.equal(await spent.reasonOf({ type: "refund" }), "valid");
  t.equal(await scene({ state: "unreadable" }).reasonOf(), "rpc_read_failed");
});

t.test("a wrong signature comes before everything on the chain", async (t) => {
  for (const state of ["unreadable", { balance: 0n }, {}] as const) {
    const { reasonOf, log } = scene({ state });
    t.equal(await reasonOf({ key: otherKey }), "voucher_signature");
    t.notOk(log.includes("state"));
  }
});

const compact = (hex: Hex): Hex =>
  serializeCompactSignature(signatureToCompactSignature(parseSignature(hex)));
const highS = (hex: Hex): Hex => {
  const s = numberToHex(ORDER - BigInt(`0x${hex.slice(66, 130)}`), { size: 32 });
  return `0x${hex.slice(2, 66)}${s.slice(2)}${hex.endsWith("1c") ? "1b" : "1c"}`;
};
const enveloped = (signature: Hex): Hex =>
  serializeErc6492Signature({ address: random(20), data: "0x01", signature });

t.test("a key's signature counts only as the contract accepts it at a claim", async (t) => {
  const forms: [string, (hex: Hex) => string, string][] = [
    ["as it is", (hex) => hex, "valid"],
    ["upper case", (hex) => `0x${hex.slice(2).toUpperCase()}`, "valid"],
    ["compact", compact, "voucher_signature"],
    [
      "v 0 or 1",
      (hex) => `${hex.slice(0, 130)}0${hex.endsWith("1c") ? 1 : 0}`,
      "voucher_signature",
    ],
    ["high s", highS, "voucher_signature"],
    ["in an envelope", enveloped, "voucher_signature"],
    ["longer", (hex) => `${hex}00`, "voucher_signature"],
    ["shorter", (hex) => hex.slice(0, -2), "voucher_signature"],
    ["without 0x", (hex) => hex.slice(2), "voucher_signature"],
    ["no hex", (hex) => `${hex.slice(0, -2)}zz`, "voucher_signature"],
    ["empty", () => "0x", "voucher_signature"],
  ];
  for (const config of [CONFIG, BY_PAYER])
    for (const [name, bend, reason] of forms)
      t.equal(await scene().reasonOf({ config, bend }), reason, name);
});

t.test("who signs", async (t) => {
  t.equal(await scene().reasonOf({ key: payerKey }), "voucher_signature", "not the payer");
  const key = scene({ hasCode: true, accepts: () => true });
  t.equal(await key.reasonOf(), "valid");
  t.same(key.log, ["state"], "with an authorizer, the payer's code is not asked");
  t.equal(await key.reasonOf({ key: otherKey }), "voucher_signature");

  const plain = scene({ accepts: () => true });
  t.equal(await plain.reasonOf({ config: BY_PAYER }), "valid");
  t.same(plain.log, [`code ${PAYER}`, "state"]);
  t.equal(await plain.reasonOf({ config: BY_PAYER, key: voucherKey }), "voucher_signature");
});

t.test("a payer with code decides itself, by the bytes that a claim carries", async (t) => {
  const digest = voucherDigest(ARC.chainId, channelIdOf(ARC.chainId, BY_PAYER), 3_000n);
  for (const bend of [(hex: Hex) => hex, compact, highS, enveloped, () => "0x01" as const]) {
    let sent: string = "";
    const given = {
      config: BY_PAYER,
      key: otherKey,
      bend: (hex: Hex) => {
        sent = bend(hex);
        return sent;
      },
    };
    const yes = scene({ hasCode: true, accepts: () => true });
    t.equal(await yes.reasonOf(given), "valid");
    t.same(yes.shown, [sent], "unchanged");
    t.same(yes.log, [`code ${PAYER}`, `wallet ${PAYER} ${digest}`, "state"]);
    t.equal(await scene({ hasCode: true }).reasonOf(given), "voucher_signature");
  }
  const own = scene({ hasCode: true });
  t.equal(
    await own.reasonOf({ config: BY_PAYER }),
    "voucher_signature",
    "its key's signature alone is not enough",
  );
  for (const [name, signature, reason] of [
    ["as long as a claim takes", `0x${"ab".repeat(3_999)}`, "valid"],
    ["longer", `0x${"ab".repeat(4_000)}`, "voucher_signature"],
    ["odd", "0xabc", "voucher_signature"],
    ["empty", "0x", "voucher_signature"],
    ["no hex", "0xzz", "voucher_signature"],
  ] as const) {
    const wallet = scene({ hasCode: true, accepts: () => true });
    t.equal(await wallet.reasonOf({ config: BY_PAYER, bend: () => signature }), reason, name);
    if (reason !== "valid") t.same(wallet.shown, [], "the wallet is not called");
  }
});

t.test("a deposit counts for its voucher, and the answer shows the state before it", async (t) => {
  const { check, log } = scene();
  const result = await check(bodyOf({ type: "deposit", ceiling: 15_000n }));
  t.ok(result.isValid);
  if (result.isValid) t.match(result.extra, { balance: "10000", totalClaimed: "2100" });
  t.ok(log.includes("payment 5000"));
  const cases: [bigint, string][] = [
    [2_099n, "cumulative_below_claimed"],
    [2_100n, "cumulative_below_claimed"],
    [2_101n, "valid"],
    [15_000n, "valid"],
    [15_001n, "cumulative_exceeds_balance"],
  ];
  for (const [ceiling, reason] of cases)
    t.equal(await scene().reasonOf({ type: "deposit", ceiling }), reason, `${ceiling}`);
  const first = scene({ state: { balance: 0n, totalClaimed: 0n } });
  t.equal(await first.reasonOf({ type: "deposit", ceiling: 5_000n }), "valid");
  t.equal(await first.reasonOf({ type: "deposit", ceiling: 5_001n }), "cumulative_exceeds_balance");
  t.equal(await first.reasonOf({ type: "deposit", ceiling: 0n }), "cumulative_below_claimed");
});

t.test("reasons of a deposit in the protocol's order", async (t) => {
  const [funds, fails, early] = [
    "invalid_batch_settlement_evm_insufficient_balance",
    "invalid_batch_settlement_evm_deposit_simulation_failed",
    "invalid_batch_settlement_evm_receive_authorization_signature",
  ] as const;
  const bad = { key: otherKey };
  const above = { ceiling: 15_001n };
  const cases: [string, Scene, Given, string][] = [
    [
      "its own signature",
      { checked: early, state: "unreadable" },
      bad,
      "receive_authorization_signature",
    ],
    ["the voucher", { checked: funds, state: "unreadable" }, bad, "voucher_signature"],
    ["the voucher", { checked: fails, state: "unreadable" }, bad, "voucher_signature"],
    ["the voucher", {}, { ...bad, ...above }, "voucher_signature"],
    ["the state", { checked: funds, state: "unreadable" }, above, "rpc_read_failed"],
    ["the state", { checked: fails, state: "unreadable" }, above, "rpc_read_failed"],
    ["the state", { state: "unreadable" }, above, "rpc_read_failed"],
    ["the balance", { checked: funds }, above, "insufficient_balance"],
    ["the ceiling", { checked: fails }, above, "cumulative_exceeds_balance"],
    ["the ceiling", { checked: fails }, { ceiling: 2_100n }, "cumulative_below_claimed"],
    ["the contract", { checked: fails }, {}, "deposit_simulation_failed"],
    ["nothing", {}, {}, "valid"],
  ];
  for (const [name, given, body, reason] of cases)
    t.equal(await scene(given).reasonOf({ type: "deposit", ...body }), reason, name);
});

t.test("a deposit that cannot be read is not checked", async (t) => {
  const { erc3009Authorization } = DEPOSIT.authorization;
  const cases: [unknown, string][] = [
    [{ ...DEPOSIT, amount: 5_000 }, "invalid_payload"],
    [{ ...DEPOSIT, amount: `${2n ** 128n}` }, "invalid_payload"],
    [{ ...DEPOSIT, authorization: {} }, "erc3009_authorization_required"],
    [{ ...DEPOSIT, authorization: { permit2Authorization: 7 } }, "permit2_authorization_required"],
    [
      {
        ...DEPOSIT,
        authorization: { erc3009Authorization: { ...erc3009Authorization, salt: "0x1" } },
      },
      "invalid_payload",
    ],
    ["none", "invalid_payload"],
  ];
  for (const [deposit, reason] of cases) {
    const { reasonOf, log } = scene();
    t.equal(await reasonOf({ type: "deposit", deposit }), reason);
    t.same(log, []);
  }
  const nulled = { ...DEPOSIT.authorization, permit2Authorization: null };
  const { reasonOf } = scene();
  t.equal(
    await reasonOf({ type: "deposit", deposit: { ...DEPOSIT, authorization: nulled } }),
    "valid",
    "null is nothing",
  );
});

t.test("what cannot be read is refused before anything else", async (t) => {
  for (const [body, reason] of [
    [{}, "invalid_payload"],
    [null, "invalid_payload"],
    [{ ...bodyOf(), x402Version: 1 }, "invalid_x402_version"],
  ] as const) {
    const { check, log } = scene();
    t.match(await check(body), { isValid: false, reason });
    t.same(log, []);
  }
});

t.test("our own deposit counts while an endpoint does not show it, and only then", async (t) => {
  const state = { balance: 0n, totalClaimed: 0n, refundNonce: 4n, withdrawRequestedAt: 0n };
  const shown = { ...state, balance: 3_100n };
  const behind = scene({ state, deposit: { shown } });
  t.equal(await behind.reasonOf({ ceiling: 3_100n }), "valid");
  t.same(behind.log, ["state", "deposit", "state at 9"]);
  t.equal(
    await scene({ state, deposit: { shown } }).reasonOf({ ceiling: 3_101n }),
    "cumulative_exceeds_balance",
  );
  t.equal(await scene({ state }).reasonOf(), "channel_not_found", "we settled none");
  t.equal(
    await scene({ state, deposit: { shown: undefined } }).reasonOf(),
    "channel_not_found",
    "no endpoint has its block",
  );
  const enough = scene({ deposit: { shown } });
  t.equal(await enough.reasonOf({ ceiling: 10_000n }), "valid");
  t.same(enough.log, ["state"], "nothing is looked for while there is enough");
});

t.test("what was returned after our deposit is not there any more", async (t) => {
  const shown = { balance: 9_000n, totalClaimed: 0n, refundNonce: 4n, withdrawRequestedAt: 7n };
  const of = (state: Partial<ChannelState>) =>
    scene({ state: { ...shown, balance: 100n, ...state }, deposit: { shown } }).reasonOf({
      ceiling: 5_000n,
    });
  t.equal(await of({}), "valid", "an endpoint that lags");
  t.equal(await of({ refundNonce: 3n }), "valid", "far behind");
  t.equal(await of({ refundNonce: 5n }), "cumulative_exceeds_balance", "refunded since");
  t.equal(await of({ withdrawRequestedAt: 0n }), "cumulative_exceeds_balance", "withdrawn since");
  t.equal(await of({ withdrawRequestedAt: 8n }), "cumulative_exceeds_balance");
});
