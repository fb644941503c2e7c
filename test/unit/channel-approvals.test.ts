// Goal: a payer's own approval before its deposit into a channel is sent only if it is this payer's, for this token, Permit2
// and at least the deposit, and only where the operator allows it.
import { randomBytes } from "node:crypto";
import t from "tap";
import { encodeFunctionData, erc20Abi, toHex, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { ChannelConfig } from "../../server/core/authorization.ts";
import type { NetworkFacts } from "../../server/core/networks.ts";
import {
  channelIdOf,
  readDeposit,
  readVoucher,
} from "../../server/schemes/batch-settlement/index.ts";
import { channelPermit2 } from "../../server/schemes/batch-settlement/deposit.ts";
import { PERMIT2_COLLECTOR } from "../../server/schemes/batch-settlement/contract.ts";
import { PERMIT2 } from "../../server/schemes/permit2/onchain.ts";
import { ARC } from "./payment-samples.ts";

const OWN = "invalid_batch_settlement_evm_";
const random = (bytes: number): Hex => toHex(randomBytes(bytes));
const key = privateKeyToAccount(generatePrivateKey());
const other = privateKeyToAccount(generatePrivateKey());
const PAYER = key.address.toLowerCase() as Address;
const USDC = ARC.usdc.address.toLowerCase() as Address;
const ON: NetworkFacts = { ...ARC, sendsApprovals: true };
const OFF: NetworkFacts = { ...ARC, sendsApprovals: false };
const AMOUNT = 5_000n;

const CONFIG: ChannelConfig = {
  payer: PAYER,
  payerAuthorizer: PAYER,
  receiver: random(20),
  receiverAuthorizer: random(20),
  token: USDC,
  withdrawDelay: 900,
  salt: random(32),
};

async function approval(
  given: { amount?: bigint; signer?: typeof key; info?: object; to?: Address } = {},
) {
  const { amount = AMOUNT, signer = key, info, to = USDC } = given;
  const signedTransaction = await signer.signTransaction({
    type: "eip1559",
    chainId: ARC.chainId,
    to,
    data: encodeFunctionData({ abi: erc20Abi, functionName: "approve", args: [PERMIT2, amount] }),
    nonce: 3,
    gas: 70_000n,
    maxFeePerGas: 9n,
    maxPriorityFeePerGas: 1n,
  });
  const signed = {
    from: key.address,
    asset: ARC.usdc.address,
    spender: PERMIT2,
    amount: `${amount}`,
    signedTransaction,
    version: "1",
    ...info,
  };
  return { erc20ApprovalGasSponsoring: { info: signed } };
}

const PERMIT = {
  eip2612GasSponsoring: {
    info: {
      from: key.address,
      asset: ARC.usdc.address,
      spender: PERMIT2,
      amount: `${AMOUNT}`,
      nonce: "0",
      deadline: "2000000000",
      signature: random(65),
      version: "1",
    },
  },
};

/** A deposit with these extensions; nothing in it is signed, because that is not checked here. */
function deposit(network: NetworkFacts, extensions: object) {
  const channelId = channelIdOf(ARC.chainId, CONFIG);
  const requirements = {
    scheme: "batch-settlement",
    network: ARC.id,
    asset: USDC,
    amount: "1000",
    payTo: CONFIG.receiver,
    extra: { receiverAuthorizer: CONFIG.receiverAuthorizer, assetTransferMethod: "permit2" },
  };
  const permit2Authorization = {
    from: PAYER,
    permitted: { token: USDC, amount: `${AMOUNT}` },
    spender: PERMIT2_COLLECTOR,
    nonce: "7",
    deadline: "2000000000",
    witness: { channelId },
    signature: random(65),
  };
  const payload = {
    type: "deposit",
    channelConfig: CONFIG,
    voucher: { channelId, maxClaimableAmount: "1000", signature: random(65) },
    deposit: { amount: `${AMOUNT}`, authorization: { permit2Authorization } },
  };
  const voucher = readVoucher(
    {
      x402Version: 2,
      paymentPayload: { x402Version: 2, accepted: requirements, payload, extensions },
      paymentRequirements: requirements,
    },
    [network],
  );
  if ("reason" in voucher) throw new Error(voucher.message);
  const read = readDeposit(voucher);
  if ("reason" in read) throw new Error(read.message);
  return {
    terms: channelPermit2.checkTerms(read, 1_000n)?.reason.replace(OWN, ""),
    approval: channelPermit2.payerApproval?.(read),
    failure: (balanceAtomic: bigint, allowance: bigint) =>
      channelPermit2
        .explainFailure(read, {
          used: false,
          balanceAtomic,
          reads: [{ success: true, data: toHex(allowance, { size: 32 }) }],
        })
        .reason.replace(OWN, ""),
  };
}

t.test("a good approval", async (t) => {
  const signed = await approval();
  const { terms, approval: found, failure } = deposit(ON, signed);
  t.equal(terms, undefined);
  t.match(found, {
    raw: signed.erc20ApprovalGasSponsoring.info.signedTransaction,
    from: PAYER,
    call: { target: USDC },
    nonce: 3n,
    gas: 70_000n,
    maxFeeWei: 9n,
  });
  t.equal(failure(AMOUNT, AMOUNT - 1n), "permit2_allowance_required");
  t.equal(
    channelPermit2.reasonUnprepared,
    `${OWN}permit2_allowance_required`,
    "the reason for which it is sent",
  );
  t.equal(failure(AMOUNT - 1n, 0n), "insufficient_balance", "not sent for a deposit without money");
  t.equal(failure(AMOUNT, AMOUNT), "deposit_simulation_failed", "not needed");
});

t.test("where the operator does not allow it, and where none was signed", async (t) => {
  const refused = deposit(OFF, await approval());
  t.equal(refused.terms, "erc20_approval_unavailable");
  t.equal(refused.approval, undefined);
  const announced = { erc20ApprovalGasSponsoring: { info: { version: "1" }, schema: {} } };
  for (const extensions of [announced, {}])
    for (const network of [ON, OFF]) {
      const { terms, approval: found, failure } = deposit(network, extensions);
      t.equal(terms, undefined);
      t.equal(found, undefined);
      t.equal(failure(AMOUNT - 1n, 0n), "permit2_allowance_required");
    }
});

t.test("the token's permit comes first", async (t) => {
  const both = { ...PERMIT, ...(await approval({ amount: 1n })) };
  for (const network of [ON, OFF]) {
    const { terms, approval: found } = deposit(network, both);
    t.equal(terms, undefined);
    t.equal(found, undefined, "the approval is not even read");
  }
});

t.test("an approval of another, for another, or of less", async (t) => {
  const cases: [object, string][] = [
    [await approval({ amount: AMOUNT - 1n }), "erc20_approval_tx_failed"],
    [await approval({ signer: other }), "erc20_approval_tx_signer_mismatch"],
    [await approval({ to: PERMIT2 }), "erc20_approval_tx_wrong_target"],
    [await approval({ info: { from: other.address } }), "erc20_approval_from_mismatch"],
    [await approval({ info: { asset: PERMIT2 } }), "erc20_approval_asset_mismatch"],
    [
      await approval({ info: { spender: PERMIT2_COLLECTOR } }),
      "erc20_approval_spender_not_permit2",
    ],
    [await approval({ info: { amount: "x" } }), "invalid_erc20_approval_extension_format"],
  ];
  for (const [extensions, reason] of cases) {
    const { terms, approval: found } = deposit(ON, extensions);
    t.equal(terms, reason);
    t.equal(found, undefined, `not sent: ${reason}`);
  }
  t.equal(deposit(ON, await approval({ amount: AMOUNT })).terms, undefined, "exactly the deposit");
});
