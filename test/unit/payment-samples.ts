// Valid payments, authorizations and engine rows for the unit tests, which change single members of them.
import type { Address, Hex } from "viem";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { findNetwork, type NetworkFacts } from "../../server/core/networks.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/store.ts";

export { TRANSFER_TYPES } from "../facilitator/payments.ts";

function known(id: string): NetworkFacts {
  const network = findNetwork(id);
  if (!network) throw new Error(id);
  return network;
}
export const ARC = known("eip155:5042002");
export const BASE_SEPOLIA = known("base-sepolia");

export const PAYER: Address = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
export const PAYEE: Address = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
export const NONCE: Hex = `0x${"c4".repeat(32)}`;

const REQUIREMENTS = {
  scheme: "exact",
  network: ARC.id as string,
  asset: ARC.usdc.address,
  amount: "1000",
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
};

/** A version 2 body. No key made its signature. */
export const bodyOf = (over: { from?: Address } = {}) => ({
  x402Version: 2,
  paymentPayload: {
    x402Version: 2,
    accepted: { ...REQUIREMENTS },
    payload: {
      signature: `0x${"ab".repeat(65)}`,
      authorization: {
        from: over.from ?? PAYER,
        to: PAYEE,
        value: "1000",
        validAfter: "0",
        validBefore: "2000",
        nonce: NONCE,
      },
    },
  },
  paymentRequirements: { ...REQUIREMENTS },
});

export const AUTHORIZATION: SignedAuthorization = {
  chainId: ARC.chainId,
  asset: ARC.usdc.address,
  from: PAYER.toLowerCase() as Address,
  to: PAYEE.toLowerCase() as Address,
  value: 1_000n,
  validAfter: 0n,
  validBefore: 2_000n,
  nonce: NONCE,
  signature: `0x${"ab".repeat(64)}1b`,
};

/** The row of this authorization, as Postgres returns it. */
export const recordOf = (
  authorization: SignedAuthorization = AUTHORIZATION,
  over: Partial<SettlementRecord> = {},
): SettlementRecord => ({
  id: "pay_1",
  kind: "facilitated",
  agent_id: null,
  chain_id: BigInt(authorization.chainId),
  asset: authorization.asset,
  from_address: authorization.from,
  to_address: authorization.to,
  value: authorization.value,
  valid_after: authorization.validAfter,
  valid_before: authorization.validBefore,
  nonce: authorization.nonce,
  signature: Buffer.from(authorization.signature.slice(2), "hex"),
  relay: true,
  status: "queued",
  error_reason: null,
  error_message: null,
  tx_hash: null,
  block_number: null,
  by_other: false,
  attempts: 0,
  class: over.kind === "withdrawal" ? 0 : (over.kind ?? "facilitated") === "facilitated" ? 2 : 1,
  turn: new Date(1_000_000),
  solo: false,
  faults: 0,
  given_up: 0,
  terms: authorization.terms ?? null,
  only_lane: null,
  cancel_signature: null,
  caller_key_hash: null,
  body_hash: null,
  success_told_at: null,
  created_at: new Date(1_000_000),
  settled_at: null,
  accepted_block: 50n,
  rehearsed_block: null,
  block_hash: null,
  proof: null,
  final_at: null,
  tried_again_at: null,
  searched_up: null,
  searched_down: null,
  look_failures: 0,
  traceparent: null,
  ...over,
});
