// Valid payments, authorizations and engine rows for the unit tests, which change single members of them.
import type { Address, Hex } from "viem";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { findNetwork, type NetworkFacts } from "../../server/core/networks.ts";
import type { SettlementRecord } from "../../server/plugins/settlement/types.ts";

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

/** The row of this authorization, as it is decoded. */
export const recordOf = (
  authorization: SignedAuthorization = AUTHORIZATION,
  over: Partial<SettlementRecord> = {},
): SettlementRecord => ({
  id: "pay_1",
  kind: "facilitated",
  agentId: null,
  authorization: { ...authorization, terms: authorization.terms ?? null },
  relay: true,
  status: "queued",
  errorReason: null,
  errorMessage: null,
  txHash: null,
  blockNumber: null,
  byOther: false,
  callerKeyHash: null,
  bodyHash: null,
  successReturnedAt: null,
  createdAt: new Date(1_000_000),
  settledAt: null,
  isFinal: false,
  mayTryAgain: false,
  traceparent: null,
  class: over.kind === "withdrawal" ? 0 : (over.kind ?? "facilitated") === "facilitated" ? 2 : 1,
  turn: new Date(1_000_000),
  solo: false,
  attempts: 0,
  faults: 0,
  givenUp: 0,
  cancelSignature: null,
  acceptedBlock: 50n,
  blockHash: null,
  searchedUp: null,
  searchedDown: null,
  ...over,
});
