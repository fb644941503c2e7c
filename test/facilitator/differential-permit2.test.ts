// Goal: on hundreds of Permit2 payments, verdicts and codes equal those of the reference implementation, except for
// the reasons in differences.ts and this file.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { commonDifferences, expectSameVerdicts, type Difference } from "./differences.ts";
import { bentPermit2Payments } from "./permit2-payments.ts";
import { referenceFacilitator } from "./reference.ts";

const BAD = "invalid_permit2_signature";
const ALLOWANCE = "permit2_allowance_required";
const DIFFERENCES: readonly Difference[] = [
  ...commonDifferences({
    signature: BAD,
    simulation: "permit2_simulation_failed",
    amount: "permit2_amount_mismatch",
    recipient: "invalid_permit2_recipient_mismatch",
    asset: "permit2_token_mismatch",
    highS: "valid",
    dearWallet: ALLOWANCE,
  }),
  {
    payments: /^(payment(Requirements|Payload)\..* = |zero amount$)/,
    reference: [
      "throws",
      "valid",
      BAD,
      "permit2_amount_mismatch",
      "permit2_token_mismatch",
      "permit2_simulation_failed",
      "permit2_deadline_expired",
      "permit2_not_yet_valid",
      "invalid_permit2_spender",
      "invalid_permit2_recipient_mismatch",
    ],
    purser: "invalid_payload",
    why: "Purser parses addresses and integers strictly, and relays no payment of zero.",
  },
  {
    payments: /^paymentRequirements\.scheme = /,
    reference: ["unsupported_payload_type", "throws"],
    purser: "unsupported_scheme",
    why: "The protocol has a code for unsupported schemes.",
  },
  {
    payments: /^sponsored, (amount|nonce|deadline|signature) = /,
    reference: ["permit2_allowance_required", "valid", "eip2612_deadline_expired"],
    purser: "invalid_eip2612_extension_format",
    why: "Integers must be strings, and a signature for the proxy has 65 bytes.",
  },
  {
    payments: /^approved, (value|another chain|less than required|a tail|gas of a block)$/,
    reference: [ALLOWANCE, "valid"],
    purser: "erc20_approval_tx_failed",
    why: "An approval that does not cover the payment has its own code; the reference simulates, or does not notice.",
  },
  {
    payments: /^approved, (a nonce to come|gas too cheap|no coins)$/,
    reference: [ALLOWANCE, "valid"],
    purser: "erc20_approval_broadcast_failed",
    why: "A transaction that no node would accept has its own code.",
  },
  {
    payments: /^approved, (amount|version) = 7$/,
    reference: ["valid"],
    purser: "invalid_erc20_approval_extension_format",
    why: "Integers must be strings.",
  },
];

for (const scheme of ["exact", "upto"])
  t.test(`${scheme} over Permit2: same verdicts, same codes`, async (t) => {
    const { app, chain } = await testApp(t, {
      env: { MIN_PAYMENT: "0", PAYER_APPROVALS_5042002: "true" },
    });
    const reference = referenceFacilitator(chain, chain.relayer);
    const payments = await bentPermit2Payments(
      chain,
      scheme === "upto" ? chain.relayer.address : undefined,
    );
    await expectSameVerdicts(t, { app, reference, payments, differences: DIFFERENCES });
  });
