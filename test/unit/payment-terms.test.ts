// Goal: recipient, validity window, value and domain are checked against the seller's terms, each with its own reason and in the protocol's order.
import t from "tap";
import {
  checkTerms,
  exactEip3009,
  explainFailure,
  type ExactPayment,
} from "../../server/schemes/exact-eip3009/index.ts";
import { readPayment } from "../../server/schemes/index.ts";
import { REASONS } from "../../server/schemes/scheme.ts";
import { ARC, bodyOf } from "./payment-samples.ts";

const read = readPayment(bodyOf(), [ARC]);
if (!read.isValid) throw new Error(read.message);
const GOOD = read.payment as ExactPayment;
/** The good payment with changed members or a changed authorization. */
function altered({ authorization, ...rest }: Changes): ExactPayment {
  return { ...GOOD, ...rest, authorization: { ...GOOD.authorization, ...authorization } };
}
type Changes = Partial<Omit<ExactPayment, "authorization">> & {
  authorization?: Partial<ExactPayment["authorization"]>;
};
const OTHER = "0x00000000000000000000000000000000000000ee";
const NOW = 1_000n;

t.test("each mismatch with the terms has its reason", async (t) => {
  t.equal(checkTerms(GOOD, NOW), undefined);
  const wrong: [string, Changes, string][] = [
    ["to another", { authorization: { to: OTHER } }, "invalid_exact_evm_recipient_mismatch"],
    ["accepted another", { acceptedMismatch: "payTo" }, "invalid_exact_evm_recipient_mismatch"],
    [
      "too much",
      { authorization: { value: 1_001n } },
      "invalid_exact_evm_payload_authorization_value_mismatch",
    ],
    [
      "too little, v1",
      { version: 1, authorization: { value: 999n } },
      "invalid_exact_evm_authorization_value",
    ],
    [
      "accepted another price",
      { acceptedMismatch: "amount" },
      "invalid_exact_evm_payload_authorization_value_mismatch",
    ],
    ["accepted another asset", { acceptedMismatch: "asset" }, "invalid_payload"],
    [
      "expires within 6 seconds",
      { authorization: { validBefore: NOW + 5n } },
      "invalid_exact_evm_payload_authorization_valid_before",
    ],
    [
      "not valid yet",
      { authorization: { validAfter: NOW + 1n } },
      "invalid_exact_evm_payload_authorization_valid_after",
    ],
    [
      "all at once: the recipient first",
      { authorization: { to: OTHER, value: 1n, validBefore: 0n } },
      "invalid_exact_evm_recipient_mismatch",
    ],
  ];
  for (const [name, change, reason] of wrong)
    t.match(checkTerms(altered(change), NOW), { reason, payer: GOOD.payer }, name);
  t.equal(
    checkTerms(altered({ authorization: { validBefore: NOW + 6n } }), NOW),
    undefined,
    "6 seconds are enough",
  );
  t.equal(
    checkTerms(altered({ authorization: { validAfter: NOW } }), NOW),
    undefined,
    "valid from this very second",
  );
  t.equal(
    checkTerms(altered({ authorization: { validBefore: 1n } }), undefined),
    undefined,
    "without a time the window is not checked",
  );
});

t.test("why a transfer would fail", async (t) => {
  const rich = { used: false, balanceAtomic: 5_000n };
  const cases: [Changes, Parameters<typeof explainFailure>[1], string][] = [
    [{}, { used: undefined, balanceAtomic: 0n }, "invalid_exact_evm_eip3009_not_supported"],
    [{}, { used: true, balanceAtomic: 0n }, "invalid_exact_evm_nonce_already_used"],
    [{ domainName: "Gold" }, rich, "invalid_exact_evm_token_name_mismatch"],
    [{ domainVersion: "1" }, rich, "invalid_exact_evm_token_version_mismatch"],
    [{}, { used: false, balanceAtomic: 999n }, "invalid_exact_evm_insufficient_balance"],
    [{}, { used: false, balanceAtomic: 1_000n }, "invalid_exact_evm_transaction_simulation_failed"],
    [
      {},
      { used: false, balanceAtomic: undefined },
      "invalid_exact_evm_transaction_simulation_failed",
    ],
  ];
  for (const [change, found, reason] of cases)
    t.equal(explainFailure(altered(change), found).reason, reason);
  const failed = "invalid_exact_evm_transaction_simulation_failed";
  t.equal(explainFailure(GOOD, rich).message, REASONS[failed]);
  const reverts: [string, string, RegExp][] = [
    ["authorization is expired", "invalid_exact_evm_payload_authorization_valid_before", /past/],
    ["is not yet valid", "invalid_exact_evm_payload_authorization_valid_after", /not valid yet/],
    ["amount exceeds balance", failed, /balance/],
    ["invalid signature", failed, /signature/],
    ["anything else", failed, /anything else/],
  ];
  for (const [revert, reason, message] of reverts)
    t.match(explainFailure(GOOD, { ...rich, revert }), { reason, message }, revert);
});

t.test("an entry that describes another contract is not signed", async (t) => {
  const why = (extra: Record<string, unknown>) => exactEip3009.whyNotPayable(extra, ARC);
  const token = ARC.usdc.address;
  const good = [
    {},
    { name: null },
    { name: "usdc", version: 2, chainId: ARC.chainId, decimals: "6" },
  ];
  for (const extra of [...good, { verifyingContract: token, assetTransferMethod: "EIP3009" }])
    t.equal(why(extra), undefined, JSON.stringify(extra));
  const cases: [Record<string, unknown>, RegExp][] = [
    [{ name: "GatewayWalletBatched" }, /token name "GatewayWalletBatched"/],
    [{ name: {} }, /token name/],
    [{ version: "1" }, /version/],
    [{ verifyingContract: OTHER }, /verifyingContract/],
    [{ chainId: 1 }, /chainId/],
    [{ decimals: 18 }, /decimals/],
    [{ assetTransferMethod: "permit2" }, /transfer method "permit2"/],
  ];
  for (const [extra, message] of cases) t.match(why(extra), message, JSON.stringify(extra));
});
