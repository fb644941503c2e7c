// Goal: the simulated calldata equals the sent calldata for every form of signature; only a plain key's v is normalised to 27 or 28.
import t from "tap";
import {
  decodeFunctionData,
  multicall3Abi,
  parseAbi,
  parseSignature,
  serializeCompactSignature,
  serializeErc6492Signature,
  signatureToCompactSignature,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { encodeAggregate } from "../../server/infra/chain/contracts.ts";
import type { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { ChainPaymentReads } from "../../server/plugins/facilitator/chain-reads.ts";
import { PaymentChecker } from "../../server/plugins/facilitator/verify.ts";
import { toBatchItem, transactionOf } from "../../server/plugins/settlement/batch.ts";
import { transferOf } from "../helpers/eip3009.ts";
import { ARC, bodyOf, recordOf } from "./payment-samples.ts";

const TOKEN_ABI = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
]);
const key = privateKeyToAccount(generatePrivateKey());
const WALLET: Address = "0x00000000000000000000000000000000000000aa";
const FACTORY: Address = "0x00000000000000000000000000000000000000fa";

/** Answers every call of an aggregate with success, and keeps the calldata. */
function agreeingChain(contracts: readonly string[], calldata: Hex[]): Pick<ChainRpc, "call"> {
  const call = async (method: string, params: unknown[]): Promise<unknown> => {
    if (method === "eth_getCode") return contracts.includes(String(params[0])) ? "0x60" : "0x";
    const { data } = params[0] as { data: Hex };
    calldata.push(data);
    const { args } = decodeFunctionData({ abi: multicall3Abi, data });
    const word = (value: number): string => value.toString(16).padStart(64, "0");
    const count = (args[0] as unknown[]).length;
    const magic = `1626ba7e${"0".repeat(56)}`;
    const tuple = word(1) + word(64) + word(32) + magic;
    const offsets = Array.from({ length: count }, (_, index) => word(count * 32 + index * 128));
    return `0x${word(32)}${word(count)}${offsets.join("")}${tuple.repeat(count)}`;
  };
  return { call: call as ChainRpc["call"] };
}

async function checkedAndSent(body: unknown, contracts: readonly string[]) {
  const calldata: Hex[] = [];
  const reads = new ChainPaymentReads(agreeingChain(contracts, calldata), ARC, 300_000n);
  const checker = new PaymentChecker({
    relayers: [],
    networks: [ARC],
    minPaymentAtomic: 1n,
    nowSeconds: () => 1_000n,
    factories: [FACTORY],
    reads: new Map([[ARC.chainId, reads]]),
  });
  const result = await checker.check(body);
  if (!result.isValid) throw new Error(result.message);
  return { checked: calldata.at(-1), ...sentFor(result.authorization) };
}

/** What the engine simulates and broadcasts for the row of this authorization. */
function sentFor(authorization: SignedAuthorization) {
  const item = toBatchItem(recordOf(authorization), 300_000n);
  return { item, simulated: encodeAggregate([item.call]), sent: transactionOf([item]) };
}

/** The signature arguments of the transfer, as the token reads them. */
function tokenCall(data: Hex) {
  const { args } = decodeFunctionData({ abi: TOKEN_ABI, data });
  return args.slice(6);
}

async function signed(from: Address = key.address): Promise<{ body: Body; signature: Hex }> {
  const body = bodyOf({ from });
  const { authorization } = body.paymentPayload.payload;
  const signature = await key.signTypedData({
    domain: {
      name: "USDC",
      version: "2",
      chainId: ARC.chainId,
      verifyingContract: ARC.usdc.address,
    },
    ...transferOf(authorization),
  });
  return { body, signature };
}
type Body = ReturnType<typeof bodyOf>;
const shown = (body: Body, signature: Hex): unknown => ({
  ...body,
  paymentPayload: {
    ...body.paymentPayload,
    payload: { ...body.paymentPayload.payload, signature },
  },
});

t.test("a plain account's signature has one form on chain, however it was written", async (t) => {
  const { body, signature } = await signed();
  const { r, s, yParity } = parseSignature(signature);
  const rs = signature.slice(0, 130);
  const forms: [string, Hex][] = [
    ["v 27 or 28", signature],
    ["v 0 or 1", `${rs as Hex}0${yParity}`],
    ["64 bytes", serializeCompactSignature(signatureToCompactSignature({ r, s, yParity }))],
    ["upper case", `0x${signature.slice(2).toUpperCase()}`],
  ];
  for (const [name, form] of forms) {
    const { checked, simulated, sent, item } = await checkedAndSent(shown(body, form), []);
    t.equal(checked, simulated, name);
    t.equal(sent.calldata, item.call.data, name);
    t.same(tokenCall(sent.calldata), [27 + yParity, r, s], `${name}: (v, r, s)`);
    t.equal(item.solo, false, name);
  }
});

t.test("the signature bytes of a contract are not changed", async (t) => {
  const { body } = await signed(WALLET);
  const approved: Hex = `0x${key.address.slice(2).toLowerCase().padStart(64, "0")}${"0".repeat(64)}01`;
  const shapes: [string, Hex][] = [
    ["an approved hash, v 1", approved],
    ["65 bytes, v 0", `${approved.slice(0, -2) as Hex}00`],
    ["65 bytes, v 31", `${approved.slice(0, -2) as Hex}1f`],
    ["64 bytes", `0x${"ab".repeat(64)}`],
    ["long", `0x${"cd".repeat(195)}`],
    ["one byte", "0x01"],
  ];
  for (const [name, signature] of shapes) {
    const { checked, simulated, sent, item } = await checkedAndSent(shown(body, signature), [
      WALLET,
    ]);
    t.equal(checked, simulated, name);
    t.same(tokenCall(sent.calldata), [signature], `${name}: as bytes`);
    t.equal(item.solo, true, `${name}: runs third-party code`);
    t.equal(item.gas, 300_000n, name);
  }
  const { body: other, signature } = await signed(WALLET);
  const { checked, simulated, sent } = await checkedAndSent(shown(other, signature), [WALLET]);
  t.equal(checked, simulated, "65 bytes of the wallet's owner");
  const { r, s, v } = parseSignature(signature);
  t.same(tokenCall(sent.calldata), [Number(v), r, s], "the token joins them to the same 65 bytes");
});

t.test("a wallet deployed first: the same two calls; the transfer must succeed", async (t) => {
  const { body, signature } = await signed(WALLET);
  const envelope = serializeErc6492Signature({ address: FACTORY, data: "0xc0de", signature });
  const { checked, sent, item } = await checkedAndSent(shown(body, envelope), []);
  const callsOf = (data: Hex) => {
    const { args } = decodeFunctionData({ abi: multicall3Abi, data });
    return args[0] as { target: Address; allowFailure: boolean; callData: Hex }[];
  };
  const checkedCalls = callsOf(checked ?? "0x");
  t.same(
    checkedCalls.map(({ target, callData }) => ({ target, callData })),
    callsOf(sent.calldata).map(({ target, callData }) => ({ target, callData })),
  );
  t.same(
    callsOf(sent.calldata).map(({ allowFailure }) => allowFailure),
    [true, false],
  );
  t.equal(item.gas, 1_800_000n, "gas for its deployment");
});
